// Many short runs leave a bot as it was, and idle ones cost nothing. `npm run stress -- --only soak` plays ten thousand.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { freshRegistry } from './support/bots.mjs'
import { grown, startSoak } from './support/soak.mjs'
import { linuxOnly, NO_CHANNELS, NO_PROC, nodeOnly } from './support/system.mjs'

const options = { timeout: 300_000 }
const MB = 1 << 20

test('three hundred runs, and nothing is left of them', nodeOnly(NO_CHANNELS, options), async (t) => {
  const bot = startSoak(t, freshRegistry())
  assert.deepEqual(await bot.play(100), [], 'the first ones')
  const before = await bot.settled({ ...(await bot.measure()), zombies: 0, live: 0 })
  assert.deepEqual(await bot.play(300), [])
  const after = await bot.settled(before)
  // The first thousand that have ended are remembered, and memory that was in use once is not given back at once.
  assert.deepEqual(grown({ ...before, zombies: 0, live: 0 }, after, 32 * MB), [])
})

test(
  'of a run that is over it is known how it ended; the rest can go',
  nodeOnly(NO_CHANNELS, options),
  async (t) => {
    const bot = startSoak(t, freshRegistry())
    const expected = { isCollected: true, outcome: 'already-exited', reasons: ['exit'] }
    assert.deepEqual(await bot.forget(), expected)
  },
)

test('fifty runs that do nothing cost nothing', linuxOnly(NO_PROC, options), async (t) => {
  const bot = startSoak(t, freshRegistry())
  const { processes, bot: own, rest } = await bot.idle(50, 3000)
  assert.ok(processes >= 100, `${processes} processes`)
  assert.equal(rest, 0, 'keepers and commands are asleep')
  // One heartbeat of the lease, a look at each of the streams that must not be silent, and the timer of the measurement.
  assert.ok(own < 100, `the bot has used ${own} ms in 3 s`)
})
