/**
 * The long loops: each does one thing, which the tests do a few times, a thousand times. They
 * measure the reliability targets.
 */

export const LOOPS = [
  'cancelled',
  'environment-written',
  'closed-stdin',
  'born-while-cancelled',
  'many-runs',
  'bot-killed',
  'all-killed',
  'all-killed-in-cgroup',
  'stale-cookies',
  'pid-reuse',
  'shared-registry',
  'soak',
]

export class Loops {
  hasFailed = false
  #loop
  #isStopped = false

  stop() {
    this.#isStopped = true
    this.#loop?.stop()
  }

  /**
   * Plays `rounds` rounds of each loop, or its full count. Until `endAt`, the loops get equal
   * shares of the time.
   */
  async play({ names, rounds, first, seed, isSaving = true, endAt = Number.POSITIVE_INFINITY }) {
    const { Loop } = await import('./lib/loop.mjs')
    for (const [index, name] of names.entries()) {
      if (this.#isStopped) return
      const { play, what, full } = await import(`./${name}.mjs`)
      const share = (endAt - performance.now()) / (names.length - index)
      const how = { rounds: rounds ?? full, first, seed, isSaving }
      this.#loop = new Loop({ name, ...how, endAt: performance.now() + share })
      console.log(`\n${name}: ${what}`)
      await this.#loop.run(play)
      if (this.#loop.failures.length > 0) this.hasFailed = true
    }
  }
}
