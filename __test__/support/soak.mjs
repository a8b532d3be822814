// A bot that plays thousands of runs, and what it must look like afterwards.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { script } from './fixtures.mjs'

/** Nothing of ours goes on for longer when all runs are over: threads for a burst of work, keepers that are being made. */
const SETTLED_WITHIN_MS = 60_000

/** Starts fixtures/bot-that-soaks.mjs; it goes with the test. */
export function startSoak(t, registryPath) {
  const child = fork(script('bot-that-soaks.mjs'), [registryPath], {
    execArgv: ['--expose-gc'],
    // Ctrl-C is for whoever plays it.
    detached: true,
  })
  const ended = once(child, 'exit')
  t.after(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const ask = async (order, ...args) => {
    child.send({ order, args })
    const died = ended.then(() => [{ error: 'the bot is gone' }])
    const [{ value, error }] = await Promise.race([once(child, 'message'), died])
    if (error) throw new Error(error)
    return value
  }
  return {
    play: (count) => ask('play', count),
    measure: () => ask('measure'),
    forget: () => ask('forget'),
    idle: (count, ms) => ask('idle', count, ms),
    /** What is left when it has come to rest: no more of anything than before, or what there is after a while. */
    async settled(before) {
      const giveUpAt = performance.now() + SETTLED_WITHIN_MS
      for (;;) {
        const now = await ask('measure')
        const isSettled = ['fds', 'threads', 'zombies', 'helpers', 'live'].every(
          (it) => now[it] <= before[it],
        )
        if (isSettled || performance.now() > giveUpAt) return now
        await delay(50)
      }
    },
  }
}

/** What there is more of than before, in words. Memory may grow by so many bytes. */
export function grown(before, after, rssGrowth) {
  const more = ['fds', 'threads', 'zombies', 'helpers', 'live'].filter((it) => after[it] > before[it])
  if (after.rss - before.rss > rssGrowth) more.push('rss')
  return more.map((it) => `${it}: ${before[it]} → ${after[it]}`)
}
