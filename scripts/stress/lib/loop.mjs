/** Plays rounds and counts. It continues after a failure, to show how often a failure occurs. */

import { seed as givenSeed, sequence } from '../../../__test__/support/random.mjs'
import { saveFinding } from '../regressions.mjs'

/** A loop stops after this many failures. */
const MOST_FAILURES = 10
const REPORT_EVERY_MS = 30_000

export class Loop {
  failures = []
  /** Counts by name, to be printed. */
  figures = { rounds: 0, survivors: 0, bystanders: 0 }
  #name
  #endAt
  #times = []
  #stopped = false
  #onStop = []
  #seed
  #first
  #isSaving

  /**
   * `first`: the first round, counted from 0. `isSaving`: each failed round becomes a file in
   * regressions/.
   */
  constructor({ name, rounds, endAt, seed = givenSeed, first = 0, isSaving = false }) {
    this.#name = name
    this.#endAt = endAt
    this.#seed = seed
    this.#first = first
    this.#isSaving = isSaving
    this.rounds = rounds
    this.random = sequence(seed, name)
  }

  get isOver() {
    return this.#stopped || this.failures.length >= MOST_FAILURES || performance.now() >= this.#endAt
  }

  stop() {
    this.#stopped = true
    for (const listener of this.#onStop) listener()
  }

  /** For a loop whose rounds are played by another process. */
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

  /**
   * Plays the rounds in sequence. Each has its own scope and its own random sequence, so it can be
   * repeated alone.
   */
  async each(body) {
    while (this.figures.rounds < this.rounds && !this.isOver) {
      const scope = new Scope()
      const [round, failed] = [this.#first + this.figures.rounds, this.failures.length]
      this.random = sequence(this.#seed, `${this.#name} ${round}`)
      try {
        await body(scope, round)
      } catch (error) {
        this.fail(error)
      } finally {
        await scope.close()
      }
      if (this.#isSaving && this.failures.length > failed) this.#save(round)
      this.figures.rounds++
    }
  }

  #save(round) {
    const found = wordsOf(this.failures.at(-1)).split('\n')[0]
    console.log(`    saved as ${saveFinding({ found, loop: this.#name, seed: this.#seed, round })}`)
  }

  pick(list) {
    return list[Math.floor(this.random() * list.length)]
  }

  count(what, more = 1) {
    this.figures[what] = (this.figures[what] ?? 0) + more
  }

  /** Notes how long something took that must be fast. */
  time(ms) {
    this.#times.push(ms)
  }

  fail(error) {
    this.failures.push(error)
    console.log(`  ✗ ${this.#name}, round ${this.#first + this.figures.rounds}: ${wordsOf(error)}`)
  }

  #summary(began) {
    const { rounds, ...counts } = this.figures
    const sorted = this.#times.toSorted((a, b) => a - b)
    const at = (share) => sorted[Math.floor(share * (sorted.length - 1))].toFixed(0)
    return [
      `${rounds} of ${this.rounds} rounds`,
      ...Object.entries(counts).map(([what, count]) => `${what} ${count}`),
      ...(sorted.length > 0
        ? [`all processes gone after p50 ${at(0.5)} p99 ${at(0.99)} max ${at(1)} ms`]
        : []),
      `${((performance.now() - began) / 1000).toFixed(0)} s`,
    ].join(' · ')
  }
}

const wordsOf = (error) =>
  error instanceof Error ? (error.name === 'Wrong' ? error.message : error.stack) : String(error)

/**
 * Stands in for a test context, for the functions of __test__/support: what they open is closed
 * with it.
 */
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

/** An expectation failed. The message says everything; the stack is not printed. */
export class Wrong extends Error {
  name = 'Wrong'
}
