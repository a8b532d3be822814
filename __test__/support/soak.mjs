// A bot that plays thousands of runs, and its expected state afterwards.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { script } from './fixtures.mjs'

/**
 * No work continues for longer after the end of all runs: threads of a burst, keepers that are
 * being forked.
 */
const SETTLED_WITHIN_MS = 60_000

/** Starts fixtures/bot-that-soaks.mjs; it ends with the test. */
export function startSoak(t, registryPath) {
  const child = fork(script('bot-that-soaks.mjs'), [registryPath], {
    execArgv: ['--expose-gc'],
    // Only the caller gets Ctrl-C.
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
    /** Its resources, as soon as none exceeds the first measurement, or after the limit. */
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

/** The resources that have grown, in words. Memory may grow by `rssGrowth` bytes. */
export function grown(before, after, rssGrowth) {
  const more = ['fds', 'threads', 'zombies', 'helpers', 'live'].filter((it) => after[it] > before[it])
  if (after.rss - before.rss > rssGrowth) more.push('rss')
  return more.map((it) => `${it}: ${before[it]} → ${after[it]}`)
}
