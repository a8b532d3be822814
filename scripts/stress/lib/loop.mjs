/** Plays rounds, counts, and goes on after a failure: how often something goes wrong is worth knowing. */

import { randomFor } from '../../../__test__/support/random.mjs'

/** By then it is clear that something is wrong. */
const MOST_FAILURES = 10
const REPORT_EVERY_MS = 30_000

export class Loop {
  failures = []
  /** What is printed: counts by name. */
  figures = { rounds: 0, survivors: 0, bystanders: 0 }
  #name
  #endAt
  #times = []
  #stopped = false
  #onStop = []

  constructor({ name, rounds, endAt }) {
    this.#name = name
    this.#endAt = endAt
    this.rounds = rounds
    this.random = randomFor(name)
  }

  get isOver() {
    return this.#stopped || this.failures.length >= MOST_FAILURES || performance.now() >= this.#endAt
  }

  stop() {
    this.#stopped = true
    for (const listener of this.#onStop) listener()
  }

  /** For a loop whose rounds are played elsewhere. */
  onStop(listener) {
    this.#onStop.push(listener)
    const left = this.#endAt - performance.now()
    if (Number.isFinite(left)) setTimeout(() => this.stop(), left).unref()
  }

  async run(play) {
    const began = performance.now()
    const reporter = setInterval(() => console.log(`  … ${this.#summary(began)}`), REPORT_EVERY_MS)
    try {
      await play(this)
    } catch (error) {
      this.fail(error)
    }
    clearInterval(reporter)
    console.log(`  ${this.failures.length > 0 ? '✗' : '✓'} ${this.#summary(began)}`)
  }

  /** Rounds one after the other, each with a scope of its own. */
  async each(body) {
    while (this.figures.rounds < this.rounds && !this.isOver) {
      const scope = new Scope()
      try {
        await body(scope, this.figures.rounds)
      } catch (error) {
        this.fail(error)
      } finally {
        await scope.close()
      }
      this.figures.rounds++
    }
  }

  pick(list) {
    return list[Math.floor(this.random() * list.length)]
  }

  count(what, more = 1) {
    this.figures[what] = (this.figures[what] ?? 0) + more
  }

  /** How long something took that is to be quick. */
  time(ms) {
    this.#times.push(ms)
  }

  fail(error) {
    this.failures.push(error)
    const text =
      error instanceof Error ? (error.name === 'Wrong' ? error.message : error.stack) : String(error)
    console.log(`  ✗ ${this.#name}, round ${this.figures.rounds + 1}: ${text}`)
  }

  #summary(began) {
    const { rounds, ...counts } = this.figures
    const sorted = this.#times.toSorted((a, b) => a - b)
    const at = (share) => sorted[Math.floor(share * (sorted.length - 1))].toFixed(0)
    return [
      `${rounds} of ${this.rounds} rounds`,
      ...Object.entries(counts).map(([what, count]) => `${what} ${count}`),
      ...(sorted.length > 0 ? [`all gone after p50 ${at(0.5)} p99 ${at(0.99)} max ${at(1)} ms`] : []),
      `${((performance.now() - began) / 1000).toFixed(0)} s`,
    ].join(' · ')
  }
}

/** Stands in for a test where the support of the tests wants one: what is opened is closed with it. */
export class Scope {
  #closers = []

  after(close) {
    this.#closers.push(close)
  }

  async close() {
    for (const close of this.#closers.reverse()) await close()
    this.#closers = []
  }
}

/** Something is not as it must be; the message is all there is to say about it. */
export class Wrong extends Error {
  name = 'Wrong'
}
