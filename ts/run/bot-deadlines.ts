// BotDeadlines: the timeouts of a run that a caller changed after its start. The bot measures them.

import { clearTimeout, monotonicMs, setTimeout } from '../util/timers.js'

/** The longest delay of a timer. */
const LONGEST_MS = 2 ** 31 - 1

export type DeadlineKind = 'overall' | 'no-output'

export interface DeadlinesListener {
  /** 80 % of a timeout has passed. */
  warn(kind: DeadlineKind, limitMs: number, remainingMs: number): void
  /** A timeout has passed. */
  reached(kind: DeadlineKind, limitMs: number): void
  /** Whether output waits that the bot has not read: then the command is not silent. */
  hasUnreadOutput(): boolean
}

/** One timeout that counts. */
interface Active {
  readonly limitMs: number
  readonly since: number
  hasWarned: boolean
}

/** Counts two timeouts. Its timers do not keep the bot alive: the run does. */
export class BotDeadlines {
  readonly #listener: DeadlinesListener
  #active: Partial<Record<DeadlineKind, Active>> = {}
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(listener: DeadlinesListener) {
    this.#listener = listener
  }

  /** Starts a timeout. 0 removes it. */
  set(kind: DeadlineKind, limitMs: number, since = monotonicMs()): void {
    if (limitMs > 0) this.#active[kind] = { limitMs, since, hasWarned: false }
    else delete this.#active[kind]
    this.#schedule()
  }

  /** Extends both timeouts. The idle timeout is as long as before after the next output. */
  extend(ms: number): void {
    const { overall, 'no-output': idle } = this.#active
    if (overall) this.set('overall', overall.limitMs + ms, overall.since)
    if (idle) this.set('no-output', idle.limitMs, idle.since + ms)
  }

  /** The command has written output. The running timer checks the time when it fires. */
  output(): void {
    const { 'no-output': idle } = this.#active
    if (idle) this.#active['no-output'] = { ...idle, since: monotonicMs(), hasWarned: false }
  }

  stop(): void {
    this.#active = {}
    this.#schedule()
  }

  #schedule(): void {
    clearTimeout(this.#timer)
    const times = Object.values(this.#active).map(nextAt)
    if (times.length === 0) return
    const delay = Math.max(0, Math.min(...times) - monotonicMs())
    // Rounded up: a timer that fires early would be set again and again.
    this.#timer = setTimeout(() => this.#check(), Math.min(Math.ceil(delay), LONGEST_MS))
    this.#timer.unref()
  }

  #check(): void {
    const now = monotonicMs()
    if (this.#active['no-output'] && this.#listener.hasUnreadOutput()) this.output()
    for (const [kind, active] of Object.entries(this.#active) as [DeadlineKind, Active][]) {
      if (now < nextAt(active)) continue
      const { limitMs, since, hasWarned } = active
      if (hasWarned || now >= since + limitMs) {
        this.stop()
        this.#listener.reached(kind, limitMs)
        return
      }
      active.hasWarned = true
      this.#listener.warn(kind, limitMs, Math.round(since + limitMs - now))
    }
    this.#schedule()
  }
}

/** Returns when the timeout warns, or ends the run. */
function nextAt({ limitMs, since, hasWarned }: Active): number {
  return since + (hasWarned ? limitMs : limitMs * 0.8)
}
