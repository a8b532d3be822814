// The runs of one supervisor: who is alive, who has just ended.

import type { CancelOptions, RunExit } from '../index.js'
import type { Described, Matcher } from './filters.js'

/** How many ended runs are remembered, so that a cancel which comes late hears "already exited". */
const REMEMBERED = 1000

export interface Run extends Described {
  cancel(options?: CancelOptions): Promise<RunExit>
  /** Whether a cancel has ended it, as opposed to having found it ended. */
  readonly wasCancelled: boolean
  /** It runs, and is to outlive its bot. */
  readonly isKept?: boolean
}

export class RunTable {
  #live = new Map<string, Run>()
  #ended = new Map<string, Run>()

  add(run: Run): void {
    this.#live.set(run.runId, run)
  }

  /** Its tree is gone. What is remembered may be less than all of it. */
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
