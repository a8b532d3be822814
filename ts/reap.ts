// reapOrphans: what is to be done about the runs of bots that are gone, and the report of it.

import type { ReapDecision, ReapOptions, ReapReport, RunRecord } from '../index.js'
import { takeOver } from './adopt.js'
import { checkOptions, checkPid, duration, flag } from './checks.js'
import { codedError, invalidType, invalidValue } from './errors.js'
import type { Owner } from './owner.js'
import type { Done, Plan, PlannedDecision } from './registry.js'

type Verdict = 'terminate' | 'adopt' | 'leave'

interface Settings {
  botPid: number
  dryRun: boolean
  stealFromLive: boolean
  graceMs: number | undefined
  policy: (record: RunRecord) => Verdict
}

/** What is to be done, the policy having been asked. */
interface WantedDecision extends PlannedDecision {
  byPolicy: boolean
}

/** Either argument may be left out. Everything is checked, and the policy asked, before anything is touched. */
export async function reap(owner: Owner, botPid?: unknown, options?: unknown): Promise<ReapReport> {
  const settings = readSettings(botPid, options)
  const plan = await owner.registry.plan(settings.botPid, settings.stealFromLive)
  let wanted: WantedDecision[]
  try {
    wanted = plan.decisions.map((planned) => applyPolicy(planned, settings.policy))
  } catch (error) {
    owner.registry.forget(plan)
    throw error
  }
  if (settings.dryRun) owner.registry.forget(plan)
  const done = settings.dryRun ? undefined : await carryOut(owner, plan, wanted, settings.graceMs)
  const decisions = wanted.map((planned, index) => decisionOf(planned, done?.[index]))
  owner.announceDecisions(decisions)
  return report(decisions)
}

function readSettings(first: unknown, second: unknown): Settings {
  const onlyOptions = typeof first === 'object' && first !== null && second === undefined
  const botPid = onlyOptions ? process.pid : (first ?? process.pid)
  const options = onlyOptions ? first : second
  checkPid(botPid, 'botPid')
  checkOptions(options)
  const { dryRun, stealFromLive, graceMs, policy } = (options ?? {}) as ReapOptions
  const grace = duration(graceMs, 'options.graceMs')
  return {
    botPid,
    dryRun: flag(dryRun, 'options.dryRun'),
    stealFromLive: flag(stealFromLive, 'options.stealFromLive'),
    graceMs: grace === undefined ? undefined : Math.trunc(grace),
    policy: readPolicy(policy),
  }
}

function readPolicy(policy: unknown): Settings['policy'] {
  if (policy === undefined || policy === 'terminate') return () => 'terminate'
  if (policy === 'adopt') return () => 'adopt'
  if (typeof policy === 'string')
    throw invalidValue('options.policy', policy, "must be 'terminate', 'adopt' or a function")
  if (typeof policy !== 'function')
    throw invalidType('options.policy', "'terminate', 'adopt' or a function", policy)
  return (record) => {
    const verdict: unknown = policy(record)
    if (verdict === 'terminate' || verdict === 'adopt' || verdict === 'leave') return verdict
    throw codedError(
      TypeError,
      'ERR_INVALID_RETURN_VALUE',
      `options.policy must return 'terminate', 'adopt' or 'leave', and not a promise of it; it returned ${typeof verdict === 'string' ? `'${verdict}'` : typeof verdict} for run "${record.runId}". Nothing was touched.`,
    )
  }
}

/** Only what would be ended is the policy's business. */
function applyPolicy(planned: PlannedDecision, policy: Settings['policy']): WantedDecision {
  if (planned.action !== 'end') return { ...planned, byPolicy: false }
  switch (policy(planned.record)) {
    case 'adopt':
      return { ...planned, action: 'adopt', byPolicy: true }
    case 'leave':
      return { ...planned, action: 'leave', byPolicy: true, reason: `left by policy (${planned.reason})` }
    default:
      return { ...planned, byPolicy: false }
  }
}

async function carryOut(
  owner: Owner,
  plan: Plan,
  wanted: readonly WantedDecision[],
  graceMs: number | undefined,
): Promise<Done[]> {
  const changes = [...wanted.entries()]
    .filter(([, { byPolicy }]) => byPolicy)
    .map(([index, { action }]) => [index, action] as const)
  const done = await owner.writing().carryOut(plan.id, changes, graceMs)
  return Promise.all(done.map((one) => (one.outcome === 'adopted' ? take(owner, one) : one)))
}

/** The registry says that it is ours; now it is. */
async function take(owner: Owner, done: Done): Promise<Done> {
  if (!done.record) return done
  try {
    const { record } = await takeOver(owner, done.record)
    return { ...done, record }
  } catch (error) {
    return { outcome: 'failed', error: (error as Error).message }
  }
}

function decisionOf(planned: WantedDecision, done: Done | undefined): ReapDecision {
  const { action, byPolicy, reason, facts } = planned
  const record = done?.record ?? planned.record
  return {
    runId: record.runId,
    pid: record.pid,
    decision: action,
    outcome: done?.outcome ?? 'planned',
    dryRun: done === undefined,
    byPolicy,
    reason,
    ...(done?.error === undefined ? {} : { error: done.error }),
    facts: Object.freeze(facts),
    record,
  }
}

/**
 * The entries of live bots are nobody's concern and in no list, and neither is what another bot took before us. In a dry run
 * nothing was killed; what is dead, and what would be skipped, is true already.
 */
function report(decisions: ReapDecision[]): ReapReport {
  return {
    killed: [...new Set(decisions.filter(came('ended')).map(({ pid }) => pid))],
    alreadyDead: decisions.filter(came('already-dead', 'drop')).map(({ pid }) => pid),
    skipped: decisions
      .filter((decision) => came('skipped', 'skip', 'drop-reused')(decision) || isLeftByPolicy(decision))
      .map(({ pid, reason }) => ({ pid, reason })),
    failed: decisions
      .filter(came('failed'))
      .map(({ pid, error, reason }) => ({ pid, error: error ?? reason })),
    adopted: decisions.filter(came('adopted')).map(({ record }) => record),
    decisions,
  }
}

/** Whether that is the outcome or, in a dry run, one of the decisions. */
function came(outcome: ReapDecision['outcome'], ...decisions: ReapDecision['decision'][]) {
  return (it: ReapDecision) => it.outcome === outcome || (it.dryRun && decisions.includes(it.decision))
}

const isLeftByPolicy = ({ decision, byPolicy }: ReapDecision) => decision === 'leave' && byPolicy
