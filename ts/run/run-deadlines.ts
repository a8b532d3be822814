// RunDeadlines: extends and changes the timeouts of a run.

import type { DeadlineChange } from '../../index.js'
import type { NativeEnd } from '../native/addon.js'
import { codedError, invalidType } from '../util/errors.js'
import { killSignalNumber } from '../util/signals.js'
import { duration } from '../util/validation.js'
import { BotDeadlines, type DeadlineKind } from './bot-deadlines.js'
import type { LiveRun } from './live-run.js'
import { readDeadlineChange } from './run-changes.js'

export class RunDeadlines {
  readonly #run: LiveRun
  readonly #hasNativeIdleTimeout: boolean
  /** Only if a caller changed the timeouts after the start. */
  #bot: BotDeadlines | undefined
  /** The timeout that the bot measured, and that ended the run. */
  #reached: { ending: 'overall-timeout' | 'no-output-timeout'; limitMs: number } | undefined

  constructor(run: LiveRun) {
    this.#run = run
    this.#hasNativeIdleTimeout = run.settings.idleTimeoutMs > 0
  }

  /** Extends both timeouts. Returns false if the run does not run any more. */
  extend(ms: number): boolean {
    const { settings, state, isPostponed, native } = this.#run
    const more = duration(ms, 'ms')
    if (more === undefined) throw invalidType('ms', 'of type number', ms)
    if (settings.timeoutMs === 0 && settings.idleTimeoutMs === 0) {
      throw codedError(
        Error,
        'ERR_OWNED_NO_DEADLINE',
        `Run "${settings.runId}" has no deadline to extend. Start it with options.timeoutMs or options.noOutputTimeoutMs.`,
      )
    }
    if (isPostponed) {
      if (settings.timeoutMs > 0) settings.timeoutMs += more
      return true
    }
    if (this.#bot && state === 'running') {
      this.#bot.extend(more)
      return true
    }
    return state === 'running' && native?.extend(more) === 0
  }

  /** Sets the timeouts, from now on. Returns false if the run does not run any more. */
  set(change: DeadlineChange): boolean {
    const { settings, state, isPostponed, process } = this.#run
    const { timeoutMs, noOutputTimeoutMs } = readDeadlineChange(change, process)
    if (state !== 'running' && !isPostponed) return false
    if (!isPostponed) this.#measure()
    if (timeoutMs !== undefined) {
      settings.timeoutMs = timeoutMs
      this.#bot?.set('overall', timeoutMs)
    }
    if (noOutputTimeoutMs !== undefined) {
      settings.idleTimeoutMs = noOutputTimeoutMs
      this.#bot?.set('no-output', noOutputTimeoutMs)
    }
    return true
  }

  /** Called when the bot read output. */
  onOutput(): void {
    this.#bot?.output()
    // Output restarts the idle timeout of the native side. The bot measures it now.
    if (this.#bot && this.#hasNativeIdleTimeout) this.#run.native?.extend(Number.MAX_SAFE_INTEGER)
  }

  /** Whether the bot measured the overall timeout, and it has passed. */
  get hasTimedOut(): boolean {
    return this.#reached?.ending === 'overall-timeout'
  }

  /** Called at the end of the run. Returns what ended it, and the limit of that timeout. */
  stop(end: NativeEnd): Pick<NativeEnd, 'ending' | 'limitMs'> {
    this.#bot?.stop()
    return (end.ending === 'cancel' ? this.#reached : undefined) ?? end
  }

  /**
   * Lets the bot measure the timeouts from now on, instead of the native side.
   *
   * The native side can only extend its timeouts. So they are extended beyond any run.
   */
  #measure(): void {
    if (this.#bot) return
    const { settings, native, stdio, startedAt } = this.#run
    const { timeoutMs, idleTimeoutMs } = settings
    this.#bot = new BotDeadlines({
      warn: (deadline, limitMs, remainingMs) => this.#run.onWarning({ deadline, limitMs, remainingMs }),
      reached: (kind, limitMs) => this.#onReached(kind, limitMs),
      hasUnreadOutput: () => [1, 2].some((fd) => stdio.hasUnread(fd)),
    })
    this.#bot.set('overall', timeoutMs, startedAt)
    this.#bot.set('no-output', idleTimeoutMs)
    if (timeoutMs > 0 || idleTimeoutMs > 0) native?.extend(Number.MAX_SAFE_INTEGER)
  }

  #onReached(kind: DeadlineKind, limitMs: number): void {
    const { state, settings } = this.#run
    // The first cause is the reason: a run that is being ended has one.
    if (state === 'exiting' || state === 'exited') return
    const isOverall = kind === 'overall'
    this.#reached = { ending: isOverall ? 'overall-timeout' : 'no-output-timeout', limitMs }
    const signal = isOverall ? settings.timeoutSignal : killSignalNumber(undefined)
    this.#run.cancel(signal, settings.graceMs, this.#reached.ending)
  }
}
