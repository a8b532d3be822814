// Many short runs leave no resources behind, and idle runs use no CPU. `npm run stress -- --only
// soak` runs ten thousand.
import { freshRegistry } from '../support/bots.mjs'
import { assert, test } from '../support/prelude.mjs'
import { grown, startSoak } from '../support/soak.mjs'
import { linuxOnly, NO_CHANNELS, NO_PROC, nodeOnly } from '../support/system.mjs'

const options = { timeout: 300_000 }
const MB = 1 << 20

test('three hundred runs leave no resources behind', nodeOnly(NO_CHANNELS, options), async (t) => {
  const bot = startSoak(t, freshRegistry())
  assert.deepEqual(await bot.play(100), [], 'the first runs')
  const before = await bot.settled({ ...(await bot.measure()), zombies: 0, live: 0 })
  assert.deepEqual(await bot.play(300), [])
  const after = await bot.settled(before)
  // The bot remembers up to a thousand exits, and the allocator does not return freed memory at
  // once.
  assert.deepEqual(grown({ ...before, zombies: 0, live: 0 }, after, 32 * MB), [])
})

test(
  'the bot keeps the exit of an ended run, and releases its process object',
  nodeOnly(NO_CHANNELS, options),
  async (t) => {
    const bot = startSoak(t, freshRegistry())
    const expected = { isCollected: true, outcome: 'already-exited', reasons: ['exit'] }
    assert.deepEqual(await bot.forget(), expected)
  },
)

test('fifty idle runs use no CPU', linuxOnly(NO_PROC, options), async (t) => {
  const bot = startSoak(t, freshRegistry())
  const { processes, bot: own, rest } = await bot.idle(50, 3000)
  assert.ok(processes >= 100, `${processes} processes`)
  assert.equal(rest, 0, 'keepers and commands are asleep')
  // The bot renews its lease, checks each stream with an idle timeout, and runs the timer of the
  // measurement.
  assert.ok(own < 100, `the bot has used ${own} ms in 3 s`)
})
