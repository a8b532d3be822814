import { grown, startSoak } from '../../__test__/support/soak.mjs'
import { Scope, Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

/**
 * Until then the bot uses memory for the first time: for the heap, and for the thousand ended runs
 * that it remembers.
 */
const WARM_UP = 5000
const PIECE = 250
/** How much the resident memory of the bot may grow in ten thousand runs. */
const RSS_GROWTH = 16 << 20
const IDLE_RUNS = 50
const IDLE_MS = 5000
const IDLE_BOT_MS = 100

export const what =
  'short runs that end in every possible way do not change the file descriptors, threads, children and memory of their bot'
export const full = 10_000

export async function play(loop) {
  const registry = new StressRegistry()
  const scope = new Scope()
  try {
    await playAll(loop, startSoak(scope, registry.path))
    await scope.close()
    await registry.reap()
    await registry.mustBeEmpty('after the bot has ended')
  } finally {
    await scope.close()
    await registry.close()
  }
}

async function playAll(loop, bot) {
  for (const why of await bot.play(WARM_UP)) loop.fail(new Wrong(why))
  const before = await bot.settled({ ...(await bot.measure()), zombies: 0, live: 0 })
  // In batches, so that the loop can be stopped.
  while (loop.figures.rounds < loop.rounds && !loop.isOver) {
    const count = Math.min(PIECE, loop.rounds - loop.figures.rounds)
    for (const why of await bot.play(count)) loop.fail(new Wrong(why))
    loop.figures.rounds += count
  }
  const after = await bot.settled(before)
  const { bot: own, rest } = await bot.idle(IDLE_RUNS, IDLE_MS)
  Object.assign(loop.figures, {
    fds: `${before.fds} → ${after.fds}`,
    threads: `${before.threads} → ${after.threads}`,
    zombies: after.zombies,
    'RSS grown by MB': ((after.rss - before.rss) / (1 << 20)).toFixed(1),
    [`CPU ms of ${IDLE_RUNS} idle runs in ${IDLE_MS / 1000} s`]: `${own.toFixed(0)} + ${rest}`,
  })
  for (const more of grown({ ...before, zombies: 0, live: 0 }, after, RSS_GROWTH)) loop.fail(new Wrong(more))
  if (own > IDLE_BOT_MS || rest > 0) loop.fail(new Wrong(`idle runs cost ${own} + ${rest} ms of CPU`))
}
