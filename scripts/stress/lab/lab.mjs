/** The lab: rounds of random steps, judged; what fails is made as short as it can be. */

import { availableParallelism } from 'node:os'
import { roundSeed } from './dice.mjs'
import { violationsOf } from './invariants.mjs'
import { playInNamespace } from './namespace.mjs'
import { partOf, planFor } from './plan.mjs'
import { failureOf, summaryOf } from './report.mjs'
import { shrink, triesFor } from './shrink.mjs'

const MOST_FAILURES = 3
const REPORT_EVERY_MS = 30_000
/** What makes a plan short may take so long; nobody waits for that in CI. */
const SHRINK_MS = 180_000
const SHRINK_QUIETLY_MS = 60_000
/** So often a failed plan is played again, to see how often it fails. */
const SAMPLE = 6

export class Lab {
  figures = { rounds: 0, steps: 0, moot: 0, runs: 0, strangers: 0, reads: 0, failures: 0, ms: 0 }
  #began = performance.now()
  #isStopped = false
  #lanes
  #isQuiet
  #shrinkMs

  /** A quiet one tells of failures only. */
  constructor({ lanes = availableParallelism(), isQuiet = false } = {}) {
    this.#lanes = lanes
    this.#isQuiet = isQuiet
    this.#shrinkMs = isQuiet ? SHRINK_QUIETLY_MS : SHRINK_MS
  }

  /** The rounds that are being played are the last. */
  stop() {
    this.#isStopped = true
  }

  get summary() {
    return summaryOf({ ...this.figures, ms: performance.now() - this.#began })
  }

  /** So many rounds, or until then; several side by side. */
  async play({ seed, rounds = Number.POSITIVE_INFINITY, endAt = Number.POSITIVE_INFINITY }) {
    const report = () => this.#isQuiet || console.log(`  … ${this.summary}`)
    const reporter = setInterval(report, REPORT_EVERY_MS)
    let next = 0
    const failed = []
    const isOver = () =>
      this.#isStopped || next >= rounds || performance.now() > endAt || failed.length >= MOST_FAILURES
    const lane = async () => {
      while (!isOver()) {
        const plan = planFor(roundSeed(seed, next++))
        const violations = await this.#playOnce(plan)
        if (violations.length === 0) continue
        this.figures.failures++
        failed.push({ plan, violations })
      }
    }
    await Promise.all(Array.from({ length: this.#lanes }, lane))
    for (const { plan, violations } of failed) await this.#explain(plan, violations)
    clearInterval(reporter)
  }

  /** One plan, or a part of it, so many times. */
  async replay({ seed, numbers, times = 1 }) {
    const whole = planFor(seed)
    const plan = numbers ? partOf(whole, numbers) : whole
    for (let time = 0; time < times && !this.#isStopped; time++) {
      const violations = await this.#playOnce(plan)
      if (violations.length === 0) continue
      this.figures.failures++
      console.log(failureOf(plan, { violations, whole }))
    }
  }

  async #playOnce(plan) {
    const { facts, trouble } = await playInNamespace(plan)
    const violations = facts
      ? violationsOf(facts)
      : [{ invariant: 'the round comes to an end', what: trouble }]
    this.#count(plan, facts)
    return violations
  }

  #count(plan, facts) {
    this.figures.rounds++
    this.figures.steps += plan.steps.length
    if (!facts) return
    this.figures.moot += facts.played.filter(({ isMoot }) => isMoot).length
    this.figures.runs += facts.runs.length
    this.figures.strangers += facts.strangers.length
    this.figures.reads += facts.reads.count
  }

  /** Looks for the shortest part of a plan that breaks the same invariant, and tells it. */
  async #explain(whole, violations) {
    if (this.#isStopped) return console.log(failureOf(whole, { violations, whole }))
    const { invariant } = violations[0]
    console.log(`  ✗ seed ${whole.seed}: ${invariant}. Looking for the shortest trace …`)
    const giveUpAt = performance.now() + this.#shrinkMs
    const isOver = () => this.#isStopped || performance.now() > giveUpAt
    let shortest = { plan: whole, violations }
    const tries = await this.#triesFor(whole, invariant)
    const fails = async (numbers) => {
      const plan = partOf(whole, numbers)
      const found = await this.#findAgain(plan, invariant, tries.count, isOver)
      if (found) shortest = { plan, violations: found }
      return found !== undefined
    }
    const all = whole.steps.map(({ number }) => number)
    if (tries.count > 0) await shrink(all, fails, { isOver })
    console.log(failureOf(shortest.plan, { ...shortest, whole, often: tries.words }))
  }

  /** Races do not show every time. How often a part has to be played before it counts as harmless depends on how often the whole fails. */
  async #triesFor(plan, invariant) {
    const results = await this.#side(SAMPLE, () => this.#playOnce(plan))
    const failed = results.filter((now) => breaks(now, invariant)).length
    return { count: triesFor(failed, SAMPLE), words: `of ${SAMPLE} more plays ${failed} have failed` }
  }

  /** The violations, if this invariant is broken in one of so many plays. Another failure than that one would lead elsewhere. */
  async #findAgain(plan, invariant, tries, isOver) {
    let found
    const play = async () => {
      if (found || isOver()) return
      const now = await this.#playOnce(plan)
      if (breaks(now, invariant)) found ??= now
    }
    await this.#side(tries, play)
    return found
  }

  /** So many times, as many side by side as there are lanes. */
  async #side(count, work) {
    const results = []
    const lane = async () => {
      while (count-- > 0) results.push(await work())
    }
    await Promise.all(Array.from({ length: this.#lanes }, lane))
    return results
  }
}

const breaks = (violations, name) => violations.some(({ invariant }) => invariant === name)
