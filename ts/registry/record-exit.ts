// Converts registry records to RunExit. Pure.

import type { ProcessInfo, RunExit, RunRecord, TerminationReason } from '../../index.js'
import { describeExit, type Ending, nothingElse } from '../run/run-exit.js'
import { type Described, isSpawned } from '../run/run-filters.js'
import { epochMs } from '../util/timers.js'
import type { EndedRun } from './registry.js'

/**
 * Whether the run of a record left no process.
 *
 * A run that ended with survivors is not over: a retry can succeed in terminating them.
 */
export function isOver({ state, exit }: RunRecord): boolean {
  return state === 'exited' && (exit?.survivors ?? 0) === 0
}

/** Whether the caller wants the run to outlive its bot. False for a registered process. */
export function isKept(record: RunRecord): boolean {
  return isSpawned(record) && record.onOwnerExit === 'keep'
}

/** Returns the exit that the keeper of a run without owner recorded. */
export function exitOfRecord(record: RunRecord): RunExit {
  const { exit, startedAt, updatedAtMs } = record
  return describeExit({
    runId: record.runId,
    ending: (exit?.ending ?? 'lost') as Ending,
    reason: exit?.reason || 'lost',
    ...(exit?.exitCode != null && { exitCode: exit.exitCode }),
    ...(exit?.signal != null && { signal: exit.signal }),
    durationMs: Math.max(0, (exit?.atMs ?? updatedAtMs) - startedAt),
    ...nothingElse,
    limitMs: exit?.limitMs ?? 0,
    survivors: unnamedSurvivors(record),
    survivorCount: exit?.survivors,
  })
}

/** Returns one entry for all survivors: the registry records only how many there are. */
function unnamedSurvivors(record: RunRecord): ProcessInfo[] {
  const count = record.exit?.survivors ?? 0
  if (count === 0) return []
  const why = `${count === 1 ? '1 process' : `${count} processes`} of this run could not be terminated. The registry does not record ${count === 1 ? 'its PID' : 'their PIDs'}`
  return [wholeRun(record, why)]
}

/** Returns the exit of a run that was terminated through the registry, or had already ended. */
export function exitOfEnded(ended: EndedRun): RunExit {
  const { record } = ended
  const durationMs = Math.max(0, (record.exit?.atMs ?? epochMs()) - record.startedAt)
  return describeExit({ ...ended, runId: record.runId, durationMs, survivors: survivorsOf(ended) })
}

/**
 * Returns the survivors. A failed termination has at least one: an empty list means "nothing is
 * left".
 */
function survivorsOf({ outcome, record, survivors, error }: EndedRun): ProcessInfo[] {
  if (outcome !== 'failed' || survivors.length > 0) return survivors
  return [wholeRun(record, error ?? 'could not be terminated')]
}

/** Returns the exit of a run for which the termination could not be requested. */
export function exitOfFailed(
  { runId, pid = 0 }: Described,
  reason: TerminationReason,
  error: Error,
): RunExit {
  const survivors = [{ pid, startToken: '', command: '', why: error.message }]
  return describeExit({ runId, ending: 'cancel', reason, durationMs: 0, ...nothingElse, survivors })
}

/** Returns a survivor that stands for the whole run: its root process. */
function wholeRun({ pid, startToken, commandPreview }: RunRecord, why: string): ProcessInfo {
  return { pid, startToken: startToken ?? '', command: commandPreview, why }
}
