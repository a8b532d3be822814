// How the run of a record ended. Pure.

import type { ProcessInfo, RunExit, RunRecord, TerminationReason } from '../index.js'
import { describeExit, type Ending } from './exit.js'
import { type Described, isSpawned } from './filters.js'
import type { EndedRun } from './registry.js'
import { signalName } from './signals.js'

/**
 * Whether there is nothing left to be ended. A run that has ended and left survivors is not over: they may be
 * within reach now.
 */
export function isOver({ state, exit }: RunRecord): boolean {
  return state === 'exited' && (exit?.survivors ?? 0) === 0
}

/** Whether it is to outlive its bot. The entry of a registered process says so too, but nobody has asked for that. */
export function isKept(record: RunRecord): boolean {
  return isSpawned(record) && record.onOwnerExit === 'keep'
}

/** The exit that was written down by the keeper of a run that had no owner. */
export function exitOfRecord(record: RunRecord): RunExit {
  const { exit, startedAt, updatedAtMs } = record
  return describeExit({
    runId: record.runId,
    ending: (exit?.ending ?? 'lost') as Ending,
    reason: exit?.reason || 'lost',
    exitCode: exit?.exitCode ?? null,
    signal: signalOf(exit?.signal),
    durationMs: Math.max(0, (exit?.atMs ?? updatedAtMs) - startedAt),
    limitMs: exit?.limitMs ?? 0,
    escaped: [],
    survivors: unnamedSurvivors(record),
    survivorCount: exit?.survivors,
  })
}

/** The registry has only their number. */
function unnamedSurvivors(record: RunRecord): ProcessInfo[] {
  const count = record.exit?.survivors ?? 0
  if (count === 0) return []
  return [stillThere(record, `${count} of this run's processes could not be ended; which, was not recorded`)]
}

/** The exit of a run that was ended through the registry, or was found ended. */
export function exitOfEnded(ended: EndedRun): RunExit {
  const { record } = ended
  return describeExit({
    runId: record.runId,
    ending: ended.ending,
    reason: ended.reason,
    exitCode: ended.exitCode,
    signal: signalOf(ended.signal),
    durationMs: Math.max(0, (record.exit?.atMs ?? Date.now()) - record.startedAt),
    limitMs: ended.limitMs,
    escaped: ended.escaped,
    survivors: survivorsOf(ended),
  })
}

/** Nobody may read "nothing is left" where nobody could look. */
function survivorsOf({ outcome, record, survivors, error }: EndedRun): ProcessInfo[] {
  if (outcome !== 'failed' || survivors.length > 0) return survivors
  return [stillThere(record, error ?? 'could not be ended')]
}

/** One that could not even be asked to end. */
export function exitOfFailed(
  { runId, pid = 0 }: Described,
  reason: TerminationReason,
  error: Error,
): RunExit {
  return describeExit({
    runId,
    ending: 'cancel',
    reason,
    exitCode: null,
    signal: null,
    durationMs: 0,
    limitMs: 0,
    escaped: [],
    survivors: [{ pid, startToken: '', command: '', why: error.message }],
  })
}

/** A run as a whole, named by its root. */
function stillThere({ pid, startToken, commandPreview }: RunRecord, why: string): ProcessInfo {
  return { pid, startToken: startToken ?? '', command: commandPreview, why }
}

function signalOf(number: number | null | undefined): NodeJS.Signals | null {
  return number == null ? null : signalName(number)
}
