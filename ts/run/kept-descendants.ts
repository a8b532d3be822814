// KeptDescendants: what happens to the descendants of a root process that exited (`onLeaderExit:
// 'keep'`), and whether the run keeps the bot alive.

import { killSignalNumber } from '../util/signals.js'
import type { LiveRun } from './live-run.js'

/** The signals that ask a process to exit. Others, such as SIGUSR1, do not. */
const ASKS_TO_EXIT: ReadonlySet<NodeJS.Signals> = new Set(['SIGTERM', 'SIGINT', 'SIGQUIT', 'SIGKILL'])

export class KeptDescendants {
  /** The last signal of a caller to the root process that ends a process by default. */
  killSignal: NodeJS.Signals | undefined
  readonly #run: LiveRun
  #keepsAlive = true
  /** A caller waits for an event of the descendants. */
  #isNeeded = false

  constructor(run: LiveRun) {
    this.#run = run
  }

  /** Sets whether the run keeps the bot alive, as `ref` and `unref` do. */
  keepAlive(on: boolean): void {
    this.#keepsAlive = on
    this.#run.native?.keepAlive(on)
  }

  /** Called when a postponed run has started: an earlier `unref` counts. */
  afterStart(): void {
    if (!this.#keepsAlive) this.#run.native?.keepAlive(false)
  }

  /** Keeps the bot alive for a caller that waits for an event of the descendants. */
  keepAliveAgain(): void {
    const { settings, hasRootExited, native } = this.#run
    if (!settings.isDropIn || !hasRootExited || !this.#keepsAlive) return
    this.#isNeeded = true
    native?.keepAlive(true)
  }

  /** Called when the root process has exited by itself, and its descendants may stay. */
  afterRootExit(): void {
    const { settings, native, process, promises } = this.#run
    const { isDropIn, graceMs, endsTimeoutWithRoot } = settings
    // The root process did not exit by itself: a kill of it ends the tree. Other signals that it
    // handled, such as SIGUSR1, did not ask it to exit.
    if (this.killSignal && (process.signalCode || ASKS_TO_EXIT.has(this.killSignal)))
      native?.cancel(killSignalNumber(undefined), graceMs, process.signalCode ? 'signal' : 'exit')
    // Node's timeout is one of the root process.
    if (isDropIn && endsTimeoutWithRoot) native?.extend(Number.MAX_SAFE_INTEGER)
    // In Node, only the root process keeps the bot alive. A daemon that it left must not.
    // Until `close`, its open streams do.
    if (!isDropIn) return
    process.once('close', () => {
      if (!promises.isAwaited && !this.#isNeeded) native?.keepAlive(false)
    })
  }
}
