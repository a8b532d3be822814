/** The long loops: one thing that tests do a few times, a thousand times over. They measure the rows of the reliability targets. */

export const LOOPS = [
  'cancelled',
  'bot-killed',
  'all-killed',
  'all-killed-in-cgroup',
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

  /** So many rounds of each, or its full count; and no longer than until then, in equal shares. */
  async play({ names, rounds, endAt = Number.POSITIVE_INFINITY }) {
    const { Loop } = await import('./lib/loop.mjs')
    for (const [index, name] of names.entries()) {
      if (this.#isStopped) return
      const { play, what, full } = await import(`./${name}.mjs`)
      const share = (endAt - performance.now()) / (names.length - index)
      this.#loop = new Loop({ name, rounds: rounds ?? full, endAt: performance.now() + share })
      console.log(`\n${name}: ${what}`)
      await this.#loop.run(play)
      if (this.#loop.failures.length > 0) this.hasFailed = true
    }
  }
}
