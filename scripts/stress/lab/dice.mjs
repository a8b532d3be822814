/** Random choices that can be repeated: the same seed gives the same choices. */

import { sequence } from '../../../__test__/support/random.mjs'

export class Dice {
  #next

  constructor(seed, name = 'lab') {
    this.#next = sequence(seed, name)
  }

  /** From 0 to `count - 1`. */
  below(count) {
    return Math.floor(this.#next() * count)
  }

  /** Both included. */
  between(least, most) {
    return least + this.below(most - least + 1)
  }

  chance(share) {
    return this.#next() < share
  }

  pick(list) {
    return list[this.below(list.length)]
  }

  /** One of `[weight, value]`. */
  weighted(list) {
    let left = this.#next() * list.reduce((sum, [weight]) => sum + weight, 0)
    for (const [weight, value] of list) {
      left -= weight
      if (left < 0) return value
    }
    return list.at(-1)[1]
  }
}

/** The seed of the `index`th round of a session. */
export const roundSeed = (seed, index) => Math.floor(sequence(seed, `round ${index}`)() * 2 ** 32)
