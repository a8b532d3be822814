// cancel: by run, by id or by filter, whoever owns what is meant.

import { ChildProcess } from 'node:child_process'
import type { CancelOptions, CancelResult, RunExit, RunRecord } from '../index.js'
import { AdoptedRun } from './adopted-run.js'
import { type How, readCancelOptions } from './cancel-options.js'
import { codedError } from './errors.js'
import { isSpawned, type Matcher, matchingTarget, narrowed } from './filters.js'
import { OwnedProcess } from './owned-process.js'
import type { Owner } from './owner.js'
import { exitOfEnded, exitOfRecord, isOver } from './records.js'
import { type EndedRun, keyOf } from './registry.js'
import type { Run } from './runs.js'
import { awake } from './waiting.js'

export async function cancel(owner: Owner, target: unknown, options?: CancelOptions): Promise<CancelResult> {
  readCancelOptions(options)
  if (isRun(target)) return resultOf([target], [await target.cancel(options)], [])
  const meant = pidOfStranger(target)
  return cancelMatching(owner, meant, matchingTarget(meant), options)
}

/** Those that match; `meant` narrows the search. */
export async function cancelMatching(
  owner: Owner,
  meant: unknown,
  matches: Matcher,
  options?: CancelOptions,
): Promise<CancelResult> {
  const how = readCancelOptions(options)
  // Ours first: they need no disk.
  const live = owner.runs.findLive(matches)
  const exits = Promise.all(live.map((run) => run.cancel(options)))
  // It is waited for below; until then a failure must not count as unheard.
  exits.catch(() => {})
  const records = await findRecords(owner, meant, matches, live)
  const alive = records.filter((record) => !isOver(record))
  if (live.length + alive.length === 0) return alreadyOver(owner.runs.findEnded(matches), records)
  const [ours, ended] = await awake(() => Promise.all([exits, end(owner, alive, how)]))
  if (live.length === 0) refuseUtterFailure(ended)
  return resultOf(live, [...ours, ...remember(owner, ended)], ended)
}

function resultOf(runs: readonly Run[], exits: RunExit[], ended: readonly EndedRun[]): CancelResult {
  const cancelled = runs.some((run) => run.wasCancelled) || ended.some(wasEnded)
  return { outcome: cancelled ? 'cancelled' : 'already-exited', exits }
}

/** Nothing that is meant is alive; what is known to have ended can still say how. */
async function alreadyOver(runs: readonly Run[], records: readonly RunRecord[]): Promise<CancelResult> {
  if (runs.length + records.length === 0) return { outcome: 'not-found', exits: [] }
  const exits = await Promise.all(runs.map((run) => run.cancel()))
  return resultOf(runs, [...exits, ...records.map(exitOfRecord)], [])
}

/** Our own runs are ended whatever state the registry is in. */
async function findRecords(
  owner: Owner,
  target: unknown,
  matches: Matcher,
  live: readonly Run[],
): Promise<RunRecord[]> {
  try {
    const found = await owner.registry.find(narrowed(target))
    return found.filter((record) => matches(record) && !isOwn(owner, record))
  } catch (error) {
    if (live.length === 0) throw error
    const message = `cancel could not look for runs of other bots: ${(error as Error).message}`
    owner.report({ kind: 'unreadable', message })
    return []
  }
}

/** Whether the record's run is in our table, and known better from there: also if another bot's entry is about to go. */
function isOwn(owner: Owner, record: RunRecord): boolean {
  const { live, ended } = owner.runs.named(record.runId)
  // A registered process may have been registered again under the name of one that has ended.
  if (isSpawned(record) && ended?.pid === record.pid) return true
  return record.ownerInstanceId === owner.instanceId && live?.pid === record.pid
}

export function isRun(target: unknown): target is OwnedProcess | AdoptedRun {
  return target instanceof OwnedProcess || target instanceof AdoptedRun
}

/** A process that somebody else's `spawn` has made: it may have been registered. */
export function pidOfStranger(target: unknown): unknown {
  if (!(target instanceof ChildProcess)) return target
  // 0 is nobody's.
  return { pid: target.pid ?? 0 }
}

async function end(owner: Owner, records: readonly RunRecord[], how: How): Promise<EndedRun[]> {
  if (records.length === 0) return []
  return owner.writing().end({ keys: records.map(keyOf), ...how })
}

const wasEnded = ({ outcome }: EndedRun) => outcome !== 'already-exited'

/** They are gone from the registry, and a second cancel shall hear the same as the first. */
function remember(owner: Owner, ended: readonly EndedRun[]): RunExit[] {
  return ended.map((run) => {
    const { runId, pid, sessionId, scopeKey, service, labels } = run.record
    const exit = exitOfEnded(run)
    if (exit.survivors.length === 0) {
      const cancel = () => Promise.resolve(exit)
      const wasCancelled = wasEnded(run)
      owner.runs.remove({ runId, pid, sessionId, scopeKey, service, labels, cancel, wasCancelled })
    }
    return exit
  })
}

/** If nothing was ended, and it is not even known what is left, there is no result to speak of. */
function refuseUtterFailure(ended: readonly EndedRun[]): void {
  if (
    ended.length === 0 ||
    !ended.every(({ outcome, survivors }) => outcome === 'failed' && survivors.length === 0)
  )
    return
  const which = ended.map(({ record, error }) => `run "${record.runId}" (pid ${record.pid}): ${error}`)
  throw codedError(
    Error,
    'ERR_OWNED_CANCEL_FAILED',
    `Nothing could be ended: ${which.join('; ')}. If permission is missing, cancel as the user that runs it.`,
  )
}
