/**
 * The plan of a round: a list of steps, drawn from a seed only. Steps name bots, runs and
 * bystanders. A step whose bot or run does not exist is skipped. So any part of a plan is a plan.
 */

import { Dice } from './dice.mjs'
import { moveNamed, moves } from './moves.mjs'

const LEAST_STEPS = 6
const MOST_STEPS = 26
/** The pause before a step: none, as long as a system call, as some work, or as a grace period. */
const PACES = [
  [5, 0],
  [3, 3],
  [2, 30],
  [1, 300],
]

export function planFor(seed) {
  const dice = new Dice(seed)
  const draft = new Draft(dice, settingFor(dice))
  const count = dice.between(LEAST_STEPS, MOST_STEPS)
  draft.add(moveNamed('start'))
  while (draft.steps.length < count)
    draft.add(dice.weighted(moves.map((move) => [weightOf(move, draft), move])))
  return { seed, setting: draft.setting, steps: draft.steps }
}

/** How often a move is drawn. Some weights depend on the plan so far. */
const weightOf = ({ weight }, draft) => (typeof weight === 'function' ? weight(draft) : weight)

/**
 * The plan with only these steps. They keep their numbers, for readers and for the replay command.
 */
export const partOf = (plan, numbers) => ({
  ...plan,
  steps: plan.steps.filter(({ number }) => numbers.includes(number)),
})

/** What stays the same during a round. */
function settingFor(dice) {
  return {
    // With few PIDs, each is reused often.
    pids: dice.weighted([
      [2, { first: 1000, last: 30_000 }],
      [1, { first: 1300, last: 1400 }],
    ]),
    lookAlikes: dice.chance(0.5),
    // In the new namespace, a process group from outside has no id.
    ownSession: dice.chance(0.8),
    // Root may do what other users may not.
    isUnprivileged: dice.chance(0.35),
    /** How the remaining bots end. */
    curtain: dice.pick(['kill', 'leave', 'shutdown', 'shutdown']),
  }
}

/** A plan during its creation: the state to which the steps so far should lead. */
export class Draft {
  steps = []
  bots = []
  runs = []
  /** Bystanders that wait for a cookie, each with the bots that are older. */
  waiting = []
  /** Lasting faults: a full disk, a slow one, a held lock. */
  #lasting = new Set()
  #bystanders = 0

  constructor(dice, setting) {
    this.dice = dice
    this.setting = setting
  }

  add(move) {
    const drawn = move.draw(this)
    if (!drawn) return
    const number = this.steps.length
    const afterMs = this.dice.below(this.dice.weighted(PACES) + 1)
    this.steps.push({ number, do: move.name, ...drawn, ...(afterMs > 0 ? { afterMs } : {}) })
  }

  addBot() {
    const bot = { name: String.fromCharCode(65 + this.bots.length), isUp: true, isStopped: false }
    this.bots.push(bot)
    return bot
  }

  newBystander() {
    this.#bystanders++
    return `bystander-${this.#bystanders}`
  }

  /** A lasting fault begins, unless it already lasts; `end` ends it, if it lasts. */
  begin(what) {
    if (this.#lasting.has(what)) return undefined
    this.#lasting.add(what)
    return {}
  }

  end(what) {
    return this.#lasting.delete(what) ? {} : undefined
  }

  /** Names differ in their last letter, so that none is a prefix of another. */
  addRun(facts) {
    const run = { name: `run-${String.fromCharCode(97 + this.runs.length)}`, ...facts }
    this.runs.push(run)
    return run
  }

  /** A bot that can take requests. With `evenStopped` also a stopped one, which answers later. */
  bot({ evenStopped = false } = {}) {
    const able = this.bots.filter(({ isUp, isStopped }) => isUp && (evenStopped || !isStopped))
    return this.dice.pick(able)
  }

  /** A run that may exist; more often the latest. */
  run(fits = () => true) {
    const fitting = this.runs.filter(fits)
    return this.dice.chance(0.5) ? fitting.at(-1) : this.dice.pick(fitting)
  }
}
