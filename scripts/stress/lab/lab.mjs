/** The lab: plays rounds of random steps, checks the invariants, and shortens plans that fail. */

import { availableParallelism } from 'node:os'
import { saveFinding } from '../regressions.mjs'
import { roundSeed } from './dice.mjs'
import { violationsOf } from './invariants.mjs'
import { playInNamespace } from './namespace.mjs'
import { partOf, planFor } from './plan.mjs'
import { failureOf, summaryOf } from './report.mjs'
import { shrink, triesFor } from './shrink.mjs'

const MOST_FAILURES = 3
const REPORT_EVERY_MS = 30_000
/** Time limits for the search of the shortest plan. CI uses the lower one. */
const SHRINK_MS = 180_000
const SHRINK_QUIETLY_MS = 60_000
/** How often a failed plan is played again, to see how often it fails. */
const SAMPLE = 6

export class Lab {
  figures = { rounds: 0, steps: 0, moot: 0, runs: 0, bystanders: 0, reads: 0, failures: 0, ms: 0 }
  #began = performance.now()
  #isStopped = false
  #lanes
  #isQuiet
  #shrinkMs

  /** A quiet lab prints only failures. */
  constructor({ lanes = availableParallelism(), isQuiet = false } = {}) {
    this.#lanes = lanes
    this.#isQuiet = isQuiet
    this.#shrinkMs = isQuiet ? SHRINK_QUIETLY_MS : SHRINK_MS
  }

  /** Starts no new rounds. The current ones continue to their end. */
  stop() {
    this.#isStopped = true
  }

  get summary() {
    return summaryOf({ ...this.figures, ms: performance.now() - this.#began })
  }

  /** Plays `rounds` rounds, or until `endAt`, several in parallel. */
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

  /** Plays a plan, or a part of it, `times` times. */
  async replay({ plan: whole, name, numbers, times = 1 }) {
    const plan = numbers ? partOf(whole, numbers) : whole
    for (let time = 0; time < times && !this.#isStopped; time++) {
      const violations = await this.#playOnce(plan)
      if (violations.length === 0) continue
      this.figures.failures++
      console.log(failureOf(plan, { violations, whole, name }))
    }
  }

  async #playOnce(plan) {
    const { facts, trouble } = await playInNamespace(plan)
    const violations = facts ? violationsOf(facts) : [{ invariant: 'the round ends', what: trouble }]
    this.#count(plan, facts)
    return violations
  }

  #count(plan, facts) {
    this.figures.rounds++
    this.figures.steps += plan.steps.length
    if (!facts) return
    this.figures.moot += facts.played.filter(({ isMoot }) => isMoot).length
    this.figures.runs += facts.runs.length
    this.figures.bystanders += facts.bystanders.length
    this.figures.reads += facts.reads.count
  }

  /** Finds the shortest part of a plan that breaks the same invariant, and prints it. */
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
    // In CI the seed is fixed, so the plan need not be saved.
    if (!this.#isQuiet) console.log(`  saved as ${saveFinding({ found: invariant, plan: shortest.plan })}`)
  }

  /**
   * Races do not show every time. So the rarer the whole plan fails, the more often a part is
   * played before it counts as harmless.
   */
  async #triesFor(plan, invariant) {
    const results = await this.#inLanes(SAMPLE, () => this.#playOnce(plan))
    const failed = results.filter((now) => breaks(now, invariant)).length
    return { count: triesFor(failed, SAMPLE), words: `of ${SAMPLE} more plays ${failed} have failed` }
  }

  /**
   * The violations, if one of `tries` plays breaks this invariant. Other invariants do not count:
   * they may have another cause.
   */
  async #findAgain(plan, invariant, tries, isOver) {
    let found
    const play = async () => {
      if (found || isOver()) return
      const now = await this.#playOnce(plan)
      if (breaks(now, invariant)) found ??= now
    }
    await this.#inLanes(tries, play)
    return found
  }

  /** Calls `work` `count` times, in parallel on all lanes. */
  async #inLanes(count, work) {
    const results = []
    const lane = async () => {
      while (count-- > 0) results.push(await work())
    }
    await Promise.all(Array.from({ length: this.#lanes }, lane))
    return results
  }
}

const breaks = (violations, name) => violations.some(({ invariant }) => invariant === name)
