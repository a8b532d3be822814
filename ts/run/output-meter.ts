// OutputMeter: limits how often the output of a run is reported. Pure.

/** The interval of `output` events and of updates of the registry. */
const EVENT_INTERVAL_MS = 1000

/**
 * Decides when to report output: often enough for the idle timeout, rarely enough to cost nothing.
 *
 * Times are those of `performance.now()`.
 */
export class OutputMeter {
  readonly #intervalOf: (idleTimeoutMs: number) => number
  #reportInterval = EVENT_INTERVAL_MS
  #lastReport = Number.NEGATIVE_INFINITY
  #lastEvent = Number.NEGATIVE_INFINITY

  /** `intervalOf` returns the interval of reports that an idle timeout needs. */
  constructor(intervalOf: (idleTimeoutMs: number) => number) {
    this.#intervalOf = intervalOf
  }

  /** Sets the idle timeout. 0: none. */
  setIdleTimeout(ms: number): void {
    this.#reportInterval = ms > 0 ? Math.min(this.#intervalOf(ms), EVENT_INTERVAL_MS) : EVENT_INTERVAL_MS
  }

  /** Whether to report the output to the native side. */
  isReportDue(now: number): boolean {
    if (now - this.#lastReport < this.#reportInterval) return false
    this.#lastReport = now
    return true
  }

  /** Whether to emit an `output` event. */
  isEventDue(now: number): boolean {
    if (now - this.#lastEvent < EVENT_INTERVAL_MS) return false
    this.#lastEvent = now
    return true
  }
}
