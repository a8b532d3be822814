// cancel: terminates runs by object, id or filter, including runs of other bots.

import type { ChildProcess } from 'node:child_process'
import type { CancelOptions, CancelResult, RunExit, RunFilter, RunRecord } from '../../index.js'
import { captureStartToken, processState } from '../native/addon.js'
import { AdoptedRun } from '../orphans/adopted-run.js'
import { endedRun } from '../registry/ended-run.js'
import { exitOfEnded, exitOfRecord, isOver } from '../registry/record-exit.js'
import { type EndedRun, keyOf } from '../registry/registry.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { debug } from '../util/debug.js'
import { codedError } from '../util/errors.js'
import { awake } from '../util/timeouts.js'
import { type CancelSettings, copyCancelOptions, readCancelOptions } from './cancel-options.js'
import { hasExited, isChildProcess, provenToken } from './child-identity.js'
import { OwnedProcess } from './owned-process.js'
import { byToken, isSpawned, type Matcher, matchingTarget, narrowed, readTarget } from './run-filters.js'
import type { Run } from './run-table.js'

export async function cancel(
  context: SupervisorContext,
  target: unknown,
  options?: CancelOptions,
): Promise<CancelResult> {
  const given = copyCancelOptions(options)
  if (isRun(target)) return resultOf([target], [await target.cancel(given)], [])
  if (isChildProcess(target)) return cancelChild(context, target, given)
  const wanted = readTarget(target, 'cancel')
  return cancelMatching(context, wanted, actingOn(wanted), given)
}

/**
 * Cancels a process of `child_process.spawn`, if it was registered.
 *
 * It is found by its start token: after its exit another process can have its PID.
 */
async function cancelChild(
  context: SupervisorContext,
  child: ChildProcess,
  options: CancelOptions | undefined,
): Promise<CancelResult> {
  const token = await provenToken(child)
  if (token !== undefined) return cancelMatching(context, {}, byToken(token), options)
  return { outcome: child.pid !== undefined && hasExited(child) ? 'already-exited' : 'not-found', exits: [] }
}

/**
 * Returns the matcher of a target, for a call that sends signals or removes entries.
 *
 * A PID does not match a run whose PID was reused: the caller may mean the other process, and the
 * call must not hit what is left of the run.
 */
export function actingOn(target: string | RunFilter): Matcher {
  const matches = matchingTarget(target)
  if (typeof target === 'string' || target.pid === undefined) return matches
  return (run) => matches(run) && !(run.startToken && processState(run.startToken) === 'recycled')
}

/** Cancels the runs that match. `target` narrows the search. `options` must be a checked copy. */
export async function cancelMatching(
  context: SupervisorContext,
  target: string | RunFilter,
  matches: Matcher,
  options?: CancelOptions,
): Promise<CancelResult> {
  const settings = readCancelOptions(options)
  // The runs of this supervisor first: they need no disk access.
  const live = context.runs.findLive(matches)
  const exits = Promise.all(live.map((run) => run.cancel(options)))
  // The promise is awaited below. Until then a rejection must not count as unhandled.
  exits.catch(() => {})
  const records = await findRecords(context, target, matches, live)
  const others = records.filter((record) => !isThisProcess(record))
  if (records.length > 0 && others.length + live.length === 0) throw cannotCancelItself()
  const alive = others.filter((record) => !isOver(record))
  debug('cancel: %d runs of this supervisor and %d of others', live.length, alive.length)
  if (live.length + alive.length === 0) return alreadyOver(context.runs.findEnded(matches), others)
  const [ours, ended] = await awake(() => Promise.all([exits, end(context, alive, settings)]))
  if (live.length === 0) throwIfAllFailed(ended)
  return resultOf(live, [...ours, ...remember(context, ended)], ended)
}

function resultOf(runs: readonly Run[], exits: RunExit[], ended: readonly EndedRun[]): CancelResult {
  const cancelled = runs.some((run) => run.wasCancelled) || ended.some(wasEnded)
  return { outcome: cancelled ? 'cancelled' : 'already-exited', exits }
}

/** Returns the result if no matching run is alive: the exits of the runs that have ended. */
async function alreadyOver(runs: readonly Run[], records: readonly RunRecord[]): Promise<CancelResult> {
  if (runs.length + records.length === 0) return { outcome: 'not-found', exits: [] }
  const exits = await Promise.all(runs.map((run) => run.cancel()))
  return resultOf(runs, [...exits, ...records.map(exitOfRecord)], [])
}

/**
 * Returns the matching entries of other bots.
 *
 * If the registry cannot be read, the live runs of this supervisor are cancelled all the same.
 */
async function findRecords(
  context: SupervisorContext,
  target: string | RunFilter,
  matches: Matcher,
  live: readonly Run[],
): Promise<RunRecord[]> {
  try {
    const found = await context.registry.find(narrowed(target))
    return found.filter((record) => matches(record) && !isOwn(context, record))
  } catch (error) {
    if (live.length === 0) throw error
    const message = `cancel could not search for runs of other bots: ${(error as Error).message}`
    context.report({ kind: 'unreadable', message })
    return []
  }
}

/** Whether the record is one of a bot that registered itself: this process. */
export function isThisProcess({ pid, startToken }: RunRecord): boolean {
  return pid === process.pid && startToken !== null && startToken === captureStartToken(pid)
}

function cannotCancelItself(): Error {
  return codedError(
    Error,
    'ERR_OWNED_PROTECTED_PROCESS',
    'The entry is this process, which registered itself. A bot never signals itself. Call process.exit(), or cancel it from another process.',
  )
}

/** Whether the table of this supervisor has the run of a record. The table is more recent. */
function isOwn(context: SupervisorContext, record: RunRecord): boolean {
  const { live, ended } = context.runs.named(record.runId)
  // Only for spawned runs: a process can be registered with the run id of one that has ended.
  if (isSpawned(record) && ended?.pid === record.pid) return true
  return record.ownerInstanceId === context.instanceId && live?.pid === record.pid
}

export function isRun(target: unknown): target is OwnedProcess | AdoptedRun {
  return target instanceof OwnedProcess || target instanceof AdoptedRun
}

async function end(
  context: SupervisorContext,
  records: readonly RunRecord[],
  settings: CancelSettings,
): Promise<EndedRun[]> {
  if (records.length === 0) return []
  return context.writing().end({ keys: records.map(keyOf), ...settings })
}

const wasEnded = ({ outcome }: EndedRun) => outcome !== 'already-exited'

/**
 * Stores the exits. The entries are removed now, and a second cancel must return the same result.
 */
function remember(context: SupervisorContext, ended: readonly EndedRun[]): RunExit[] {
  return ended.map((run) => {
    const { runId, pid, startToken, sessionId, scopeKey, service, labels } = run.record
    const exit = exitOfEnded(run)
    if (exit.survivors.length === 0) {
      context.history?.add([endedRun(run.record, exit)])
      const cancel = () => Promise.resolve(exit)
      const wasCancelled = wasEnded(run)
      context.runs.remove({
        runId,
        pid,
        startToken,
        sessionId,
        scopeKey,
        service,
        labels,
        cancel,
        wasCancelled,
      })
    }
    return exit
  })
}

/**
 * Throws if every termination failed and no survivor is known: then there is no result to return.
 */
function throwIfAllFailed(ended: readonly EndedRun[]): void {
  if (
    ended.length === 0 ||
    !ended.every(({ outcome, survivors }) => outcome === 'failed' && survivors.length === 0)
  )
    return
  const which = ended.map(({ record, error }) => `run "${record.runId}" (pid ${record.pid}): ${error}`)
  throw codedError(
    Error,
    'ERR_OWNED_CANCEL_FAILED',
    `No run could be terminated: ${which.join('; ')}. If permission is missing, cancel as the user of the run.`,
  )
}
