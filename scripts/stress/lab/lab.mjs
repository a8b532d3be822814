/** The lab: rounds of random steps, judged; what fails is made as short as it can be. */

import { availableParallelism } from 'node:os'
import { roundSeed } from './dice.mjs'
import { violationsOf } from './invariants.mjs'
import { playInNamespace } from './namespace.mjs'
import { partOf, planFor } from './plan.mjs'
import { failureOf, summaryOf } from './report.mjs'
import { shrink } from './shrink.mjs'

const MOST_FAILURES = 3
const REPORT_EVERY_MS = 30_000
/** What makes a plan short may take so long, and no part of it is played more often than this before it counts as harmless. */
const SHRINK_MS = 180_000
const TRIES = 3

export class Lab {
  figures = { rounds: 0, steps: 0, moot: 0, runs: 0, strangers: 0, reads: 0, failures: 0, ms: 0 }
  #began = performance.now()
  #isStopped = false
  #lanes
  #isQuiet

  /** A quiet one tells of failures only. */
  constructor({ lanes = availableParallelism(), isQuiet = false } = {}) {
    this.#lanes = lanes
    this.#isQuiet = isQuiet
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

  async #explain(whole, violations) {
    console.log(`  ✗ seed ${whole.seed}: ${violations[0].invariant}. Looking for the shortest trace …`)
    const giveUpAt = performance.now() + SHRINK_MS
    let shortest = { plan: whole, violations }
    let played = 0
    const fails = async (numbers) => {
      const plan = partOf(whole, numbers)
      for (let attempt = 0; attempt < TRIES; attempt++) {
        played++
        const now = await this.#playOnce(plan)
        // Another failure than the one that is looked for would lead elsewhere.
        if (!now.some(({ invariant }) => invariant === violations[0].invariant)) continue
        shortest = { plan, violations: now }
        return true
      }
      return false
    }
    await shrink(
      whole.steps.map(({ number }) => number),
      fails,
      { isOver: () => this.#isStopped || performance.now() > giveUpAt },
    )
    console.log(failureOf(shortest.plan, { ...shortest, whole, times: `${played} rounds to find that` }))
  }
}
