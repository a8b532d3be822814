// reapOrphans: plans and carries out what to do about the runs of bots that are gone.

import type { ReapDecision, ReapReport, RegistryProblem, RunRecord } from '../../index.js'
import { reapedRuns } from '../registry/ended-run.js'
import type { Done, Order, Plan, PlannedDecision } from '../registry/registry.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { codedError, invalidType, invalidValue } from '../util/errors.js'
import { REAP } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { checkPid, duration, flag } from '../util/validation.js'
import { takeOver } from './adopt.js'
import { emitDetected, emitFailed, emitSettled, hasListeners } from './orphan-events.js'

type Verdict = 'terminate' | 'adopt' | 'leave'

interface Settings {
  botPid: number
  dryRun: boolean
  stealFromLive: boolean
  graceMs: number | undefined
  policy: Policy
}

/** A constant policy, or a function that decides per record. */
type Policy = 'terminate' | 'adopt' | ((record: RunRecord) => Verdict)

/** A decision after the policy. */
interface WantedDecision extends PlannedDecision {
  byPolicy: boolean
}

/**
 * Reaps orphans. Both arguments are optional.
 *
 * It checks all arguments and calls the policy before it touches any entry or process.
 */
export async function reap(
  context: SupervisorContext,
  botPid?: unknown,
  options?: unknown,
): Promise<ReapReport> {
  const settings = readSettings(botPid, options)
  // The caller may have awaited something else since it checked that the supervisor is open.
  context.refuseWhenClosed()
  // Before the first await, because a shutdown or a close that begins during the plan must know it.
  const work = tracked(context.reaping, planAndCarryOut(context, settings))
  return settings.policy === 'terminate' ? work : tracked(context.adopting, work)
}

async function planAndCarryOut(context: SupervisorContext, settings: Settings): Promise<ReapReport> {
  const plan = await context.registry.plan(settings.botPid, settings.stealFromLive)
  const { wanted, done } = await carryOut(context, plan, settings)
  const decisions = wanted.map((planned, index) => decisionOf(planned, done?.[index]))
  context.history?.add(reapedRuns(decisions))
  context.emitDecisions(decisions)
  emitSettled(context, decisions)
  return { ...report(decisions), ...(plan.problem && { registryProblem: plan.problem }) }
}

/**
 * Returns the decisions that a reap would make now. Changes nothing, and emits no decision event.
 */
export function preview(context: SupervisorContext): Promise<Preview> {
  return tracked(context.reaping, planOnly(context))
}

interface Preview {
  decisions: ReapDecision[]
  registryProblem?: RegistryProblem
}

async function planOnly(context: SupervisorContext): Promise<Preview> {
  const plan = await context.registry.plan(process.pid, false)
  context.registry.forget(plan)
  const decisions = plan.read().map((planned) => decisionOf({ ...planned, byPolicy: false }, undefined))
  return { decisions, ...(plan.problem && { registryProblem: plan.problem }) }
}

/**
 * Keeps work in a set until it settles.
 *
 * A shutdown waits for `adopting` (work that can adopt runs), a close waits for `reaping`.
 */
async function tracked<T>(inProgress: Set<Promise<unknown>>, work: Promise<T>): Promise<T> {
  const settled = work.then(
    () => {},
    () => {},
  )
  inProgress.add(settled)
  try {
    return await work
  } finally {
    inProgress.delete(settled)
  }
}

async function carryOut(
  context: SupervisorContext,
  plan: Plan,
  { policy, dryRun, graceMs }: Settings,
): Promise<{ wanted: WantedDecision[]; done?: Done[] }> {
  const order = (adopt: boolean, changes: Order['changes']) =>
    context.writing().carryOut({ id: plan.id, adopt, changes, graceMs })
  if (context.closed) {
    // The supervisor was closed while the plan was made. Nothing was touched.
    context.registry.forget(plan)
    context.refuseWhenClosed()
  }
  if (typeof policy === 'string' && !dryRun && !context.closing && !hasListeners(context)) {
    // No policy function and no listener needs the plan first, so read it while it is carried out.
    const carried = order(policy === 'adopt', [])
    // The promise is awaited below. Until then a rejection must not count as unhandled.
    carried.catch(() => {})
    const wanted = plan.read().map((planned) => applyPolicy(planned, policy))
    return { wanted, done: await adoptAll(context, await carried) }
  }
  let wanted: WantedDecision[]
  try {
    wanted = plan.read().map((planned) => applyPolicy(planned, policy))
    if (!dryRun && wanted.some(({ action }) => action === 'adopt')) context.refuseWhileClosing('touched')
    emitDetected(context, wanted, dryRun)
  } catch (error) {
    context.registry.forget(plan)
    throw error
  }
  if (dryRun) {
    context.registry.forget(plan)
    return { wanted }
  }
  const done = await order(false, changesOf(wanted)).catch((error) => {
    emitFailed(context, wanted, error)
    throw error
  })
  return { wanted, done: await adoptAll(context, done) }
}

function readSettings(first: unknown, second: unknown): Settings {
  const onlyOptions = typeof first === 'object' && first !== null && second === undefined
  const botPid = onlyOptions ? process.pid : (first ?? process.pid)
  const options = onlyOptions ? first : second
  checkPid(botPid, 'botPid')
  const { dryRun, stealFromLive, graceMs, policy } = readOptions(options, REAP, { of: 'reapOrphans' })
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
      `options.policy must return 'terminate', 'adopt' or 'leave', not a promise. ` +
        `It returned ${typeof verdict === 'string' ? `'${verdict}'` : typeof verdict} for run "${record.runId}". Nothing was touched.`,
    )
  }
}

/** Applies the policy. It decides only about entries whose run would be terminated. */
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
  return wanted.flatMap(({ byPolicy, action }, index) =>
    byPolicy && (action === 'adopt' || action === 'leave') ? [[index, action] as const] : [],
  )
}

/** Completes the adoptions: replaces each adopted outcome by its result. */
async function adoptAll(context: SupervisorContext, done: Done[]): Promise<Done[]> {
  const adopted = done.flatMap(({ outcome }, index) => (outcome === 'adopted' ? [index] : []))
  const results = await Promise.all(adopted.map((index) => adoptOne(context, done[index] as Done)))
  for (const [i, index] of adopted.entries()) done[index] = results[i] as Done
  return done
}

/** Attaches to a run. The registry already names this supervisor as its owner. */
async function adoptOne(context: SupervisorContext, done: Done): Promise<Done> {
  if (!done.record) return done
  try {
    const { record } = await takeOver(context, done.record)
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
 * Builds the report.
 *
 * No list contains the entries of live bots, or those that another bot claimed first. In a dry run
 * `killed` is empty; `alreadyDead` and `skipped` are the same as in a real run.
 */
function report(decisions: ReapDecision[]): ReapReport {
  return {
    killed: [...new Set(decisions.filter(has('ended')).map(({ pid }) => pid))],
    alreadyDead: decisions.filter(has('already-dead', 'drop')).map(({ pid }) => pid),
    skipped: decisions
      .filter((decision) => has('skipped', 'skip', 'drop-reused')(decision) || isLeftByPolicy(decision))
      .map(({ pid, reason }) => ({ pid, reason })),
    failed: decisions
      .filter(has('failed'))
      .map(({ pid, error, reason }) => ({ pid, error: error ?? reason })),
    ended: decisions.filter(has('ended')).map(({ record }) => record),
    adopted: decisions.filter(has('adopted')).map(({ record }) => record),
    decisions,
  }
}

/**
 * Returns a predicate: the decision has this outcome or, in a dry run, is one of these decisions.
 */
function has(outcome: ReapDecision['outcome'], ...decisions: ReapDecision['decision'][]) {
  return (it: ReapDecision) => it.outcome === outcome || (it.dryRun && decisions.includes(it.decision))
}

const isLeftByPolicy = ({ decision, byPolicy }: ReapDecision) => decision === 'leave' && byPolicy
