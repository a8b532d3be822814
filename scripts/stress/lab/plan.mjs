/**
 * What a round does: a list of steps, made of nothing but its seed. Steps name bots, runs and strangers; whoever plays a part of
 * them passes over those whose people are not there. So any part of a plan is a plan.
 */

import { Dice } from './dice.mjs'
import { moveNamed, moves } from './moves.mjs'

const LEAST_STEPS = 6
const MOST_STEPS = 26
/** From one step to the next: at once, within the time of a system call, or within that of a grace. */
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

/** How often a move is drawn; some have a weight that depends on the occasion. */
const weightOf = ({ weight }, draft) => (typeof weight === 'function' ? weight(draft) : weight)

/** Only those steps. Their numbers stay, for people and for the command that plays them again. */
export const partOf = (plan, numbers) => ({
  ...plan,
  steps: plan.steps.filter(({ number }) => numbers.includes(number)),
})

/** What does not change during a round. */
function settingFor(dice) {
  return {
    // Of few numbers each is used again and again.
    pids: dice.weighted([
      [2, { first: 1000, last: 30_000 }],
      [1, { first: 1300, last: 1400 }],
    ]),
    lookAlikes: dice.chance(0.5),
    // In a namespace the group of whoever has made it has no number.
    ownSession: dice.chance(0.8),
    // Root may do what others may not.
    isUnprivileged: dice.chance(0.35),
    /** How the bots that are left go in the end. */
    curtain: dice.pick(['kill', 'leave', 'shutdown', 'shutdown']),
  }
}

/** A plan in the making: what it will have led to, as far as that can be known before. */
export class Draft {
  steps = []
  bots = []
  runs = []
  /** A full disk, a slow one, a held lock. */
  #lasting = new Set()
  #strangers = 0

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

  newStranger() {
    this.#strangers++
    return `stranger-${this.#strangers}`
  }

  /** Something that lasts begins, if it does not last already; and ends, if it does. */
  begin(what) {
    if (this.#lasting.has(what)) return undefined
    this.#lasting.add(what)
    return {}
  }

  end(what) {
    return this.#lasting.delete(what) ? {} : undefined
  }

  /** Names are letters, so that none is the beginning of another. */
  addRun(facts) {
    const run = { name: `run-${String.fromCharCode(97 + this.runs.length)}`, ...facts }
    this.runs.push(run)
    return run
  }

  /** One that takes orders, also one that is stopped if asked for: it answers later. */
  bot({ evenStopped = false } = {}) {
    const able = this.bots.filter(({ isUp, isStopped }) => isUp && (evenStopped || !isStopped))
    return this.dice.pick(able)
  }

  /** One that may be there, rather a late one. */
  run(fits = () => true) {
    const fitting = this.runs.filter(fits)
    return this.dice.chance(0.5) ? fitting.at(-1) : this.dice.pick(fitting)
  }
}
