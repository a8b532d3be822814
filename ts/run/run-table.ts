// RunTable: the live runs of a supervisor, and the runs that ended recently.

import type { CancelOptions, RunExit } from '../../index.js'
import type { Described, Matcher } from './run-filters.js'

/** How many ended runs the table remembers. A late cancel of one returns "already exited". */
const REMEMBERED = 1000

export interface Run extends Described {
  cancel(options?: CancelOptions): Promise<RunExit>
  /** Whether a cancel ended the run. False if the run ended before. */
  readonly wasCancelled: boolean
  /** The run is started, and outlives its bot. */
  readonly isKept?: boolean
}

export class RunTable {
  #live = new Map<string, Run>()
  #ended = new Map<string, Run>()

  add(run: Run): void {
    this.#live.set(run.runId, run)
  }

  /** Removes a run that has ended, and remembers it, or the smaller object `remembered`. */
  remove(run: Run, remembered = run): void {
    if (this.#live.get(run.runId) === run) this.#live.delete(run.runId)
    this.#ended.set(run.runId, remembered)
    if (this.#ended.size > REMEMBERED) {
      const [oldest] = this.#ended.keys()
      if (oldest !== undefined) this.#ended.delete(oldest)
    }
  }

  isLive(runId: string): boolean {
    return this.#live.has(runId)
  }

  named(runId: string): { live: Run | undefined; ended: Run | undefined } {
    return { live: this.#live.get(runId), ended: this.#ended.get(runId) }
  }

  findLive(matches: Matcher): Run[] {
    return [...this.#live.values()].filter(matches)
  }

  findEnded(matches: Matcher): Run[] {
    return [...this.#ended.values()].filter(matches)
  }
}

/**
 * Returns a small object that answers a late cancel of a run.
 *
 * The table remembers a thousand runs. The process itself would keep its streams, and all that its
 * listeners refer to, in memory.
 */
export function remembered(run: Run & { readonly end: Promise<RunExit> }): Run {
  const { runId, pid, sessionId, scopeKey, service, labels, wasCancelled, end } = run
  const cancel = () => end
  return { runId, pid, sessionId, scopeKey, service, labels, wasCancelled, cancel }
}
