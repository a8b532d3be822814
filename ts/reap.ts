// reapOrphans: what is to be done about the runs of bots that are gone, and the report of it.

import type { ReapDecision, ReapOptions, ReapReport, RunRecord } from '../index.js'
import { takeOver } from './adopt.js'
import { checkOptions, checkPid, duration, flag } from './checks.js'
import { codedError, invalidType, invalidValue } from './errors.js'
import { isHeard, tellDetected, tellFailed, tellSettled } from './orphan-events.js'
import type { Owner } from './owner.js'
import type { Done, Order, Plan, PlannedDecision } from './registry.js'

type Verdict = 'terminate' | 'adopt' | 'leave'

interface Settings {
  botPid: number
  dryRun: boolean
  stealFromLive: boolean
  graceMs: number | undefined
  policy: Policy
}

/** One that is the same for all need not be asked. */
type Policy = 'terminate' | 'adopt' | ((record: RunRecord) => Verdict)

/** What is to be done, the policy having been asked. */
interface WantedDecision extends PlannedDecision {
  byPolicy: boolean
}

/** Either argument may be left out. Everything is checked, and the policy asked, before anything is touched. */
export async function reap(owner: Owner, botPid?: unknown, options?: unknown): Promise<ReapReport> {
  const settings = readSettings(botPid, options)
  const plan = await owner.registry.plan(settings.botPid, settings.stealFromLive)
  const carrying = carryOut(owner, plan, settings)
  const { wanted, done } = await (settings.policy === 'terminate' ? carrying : known(owner, carrying))
  const decisions = wanted.map((planned, index) => decisionOf(planned, done?.[index]))
  owner.announceDecisions(decisions)
  tellSettled(owner, decisions)
  return report(decisions)
}

/** What would be done now. Nothing is, and nobody is told. */
export async function foresee(owner: Owner): Promise<ReapDecision[]> {
  const plan = await owner.registry.plan(process.pid, false)
  owner.registry.forget(plan)
  return plan.read().map((planned) => decisionOf({ ...planned, byPolicy: false }, undefined))
}

/** A shutdown waits for it: it may take runs over. */
async function known<T>(owner: Owner, work: Promise<T>): Promise<T> {
  const settled = work.then(
    () => {},
    () => {},
  )
  owner.adopting.add(settled)
  try {
    return await work
  } finally {
    owner.adopting.delete(settled)
  }
}

async function carryOut(
  owner: Owner,
  plan: Plan,
  { policy, dryRun, graceMs }: Settings,
): Promise<{ wanted: WantedDecision[]; done?: Done[] }> {
  const order = (adopt: boolean, changes: Order['changes']) =>
    owner.writing().carryOut({ id: plan.id, adopt, changes, graceMs })
  if (typeof policy === 'string' && !dryRun && !owner.closing && !isHeard(owner)) {
    // Nobody is asked, or wants to know before: it is read while it is carried out.
    const doing = order(policy === 'adopt', [])
    // It is waited for below; until then a failure must not count as unheard.
    doing.catch(() => {})
    const wanted = plan.read().map((planned) => applyPolicy(planned, policy))
    return { wanted, done: await taken(owner, await doing) }
  }
  let wanted: WantedDecision[]
  try {
    wanted = plan.read().map((planned) => applyPolicy(planned, policy))
    if (!dryRun && wanted.some(({ action }) => action === 'adopt')) owner.refuseWhileClosing('touched')
    tellDetected(owner, wanted, dryRun)
  } catch (error) {
    owner.registry.forget(plan)
    throw error
  }
  if (dryRun) {
    owner.registry.forget(plan)
    return { wanted }
  }
  const done = await order(false, changesOf(wanted)).catch((error) => {
    tellFailed(owner, wanted, error)
    throw error
  })
  return { wanted, done: await taken(owner, done) }
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

function readPolicy(policy: unknown): Policy {
  if (policy === undefined || policy === 'terminate') return 'terminate'
  if (policy === 'adopt') return 'adopt'
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
function applyPolicy(planned: PlannedDecision, policy: Policy): WantedDecision {
  const { record, action, reason, facts } = planned
  const verdict = action !== 'end' || policy === 'terminate' ? undefined : verdictOf(policy, record)
  switch (verdict) {
    case 'adopt':
      return { record, action: 'adopt', reason, facts, byPolicy: true }
    case 'leave':
      return { record, action: 'leave', reason: `left by policy (${reason})`, facts, byPolicy: true }
    default:
      return { record, action, reason, facts, byPolicy: false }
  }
}

function verdictOf(policy: Policy, record: RunRecord): Verdict {
  return typeof policy === 'string' ? policy : policy(record)
}

function changesOf(wanted: readonly WantedDecision[]): Order['changes'] {
  return wanted.flatMap(({ byPolicy, action }, index) => (byPolicy ? [[index, action] as const] : []))
}

/** With those that were adopted in hand. */
async function taken(owner: Owner, done: Done[]): Promise<Done[]> {
  const adopted = done.flatMap(({ outcome }, index) => (outcome === 'adopted' ? [index] : []))
  const handles = await Promise.all(adopted.map((index) => take(owner, done[index] as Done)))
  for (const [i, index] of adopted.entries()) done[index] = handles[i] as Done
  return done
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
    facts,
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
