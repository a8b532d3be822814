// Builds the entries of the history. Pure.

import type { EndedRun, ReapDecision, RunExit, RunRecord } from '../../index.js'
import { describeExit, nothingElse } from '../run/run-exit.js'
import { epochMs } from '../util/timers.js'
import { exitOfRecord } from './record-exit.js'

/** What the history says about a run besides its exit. */
export interface RunAbout {
  readonly pid: number
  readonly botPid: number
  readonly commandPreview: string
  readonly sessionId?: string | null | undefined
  readonly scopeKey?: string | undefined
  readonly backendId?: string | undefined
  readonly service?: string | undefined
  readonly labels?: Readonly<Record<string, string>> | undefined
}

/** Returns the entry of a run that ended at `endedAtMs`. */
export function endedRun(about: RunAbout, exit: RunExit, endedAtMs = epochMs()): EndedRun {
  const { pid, botPid, commandPreview, sessionId, scopeKey, backendId, service, labels } = about
  const { runId, reason, ok, exitCode, signal, durationMs, message, leftovers, forced, survivors } = exit
  return {
    runId,
    pid,
    botPid,
    commandPreview,
    sessionId: sessionId ?? null,
    ...(scopeKey !== undefined && { scopeKey }),
    ...(backendId !== undefined && { backendId }),
    ...(service !== undefined && { service }),
    ...(labels && Object.keys(labels).length > 0 && { labels }),
    startedAt: endedAtMs - durationMs,
    endedAtMs,
    reason,
    ok,
    exitCode,
    signal,
    durationMs,
    message,
    leftovers: leftovers.length,
    forced: forced.length,
    survivors: survivors.length,
  }
}

/** Returns the entry of a run that ended without an owner, and whose end its keeper recorded. */
export function endedRecord(record: RunRecord): EndedRun {
  return endedRun(record, exitOfRecord(record), record.exit?.atMs ?? record.updatedAtMs)
}

/** Returns the entries of the runs that a reap ended, or found to have ended. */
export function reapedRuns(decisions: readonly ReapDecision[]): EndedRun[] {
  return decisions.flatMap(({ outcome, record }) => {
    if (outcome === 'already-dead') return [endedRecord(record)]
    return outcome === 'ended' ? [endedRun(record, exitByReap(record))] : []
  })
}

function exitByReap({ runId, startedAt }: RunRecord): RunExit {
  const durationMs = Math.max(0, epochMs() - startedAt)
  return describeExit({ runId, ending: 'owner-exit', reason: 'owner-exit', durationMs, ...nothingElse })
}
