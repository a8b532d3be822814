// How often it is told that a run's output was read. Pure.

/** A heartbeat for people and for the registry. */
const NEWS_EVERY_MS = 1000

/** Often enough for a deadline, seldom enough to cost nothing. Times are those of `performance.now()`. */
export class OutputMeter {
  #dueEvery: number
  #lastDue = Number.NEGATIVE_INFINITY
  #lastNews = Number.NEGATIVE_INFINITY

  /** `deadlineEvery`: how often a deadline needs to be told; undefined if there is none. */
  constructor(deadlineEvery: number | undefined) {
    this.#dueEvery = Math.min(deadlineEvery ?? NEWS_EVERY_MS, NEWS_EVERY_MS)
  }

  /** Whether the native side is to be told. */
  isDue(now: number): boolean {
    if (now - this.#lastDue < this.#dueEvery) return false
    this.#lastDue = now
    return true
  }

  /** Whether the bot's listeners are to be told. */
  isNews(now: number): boolean {
    if (now - this.#lastNews < NEWS_EVERY_MS) return false
    this.#lastNews = now
    return true
  }
}
