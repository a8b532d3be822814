import { hostileTrees } from '../../__test__/support/hostile-trees.mjs'
import { instant } from '../../__test__/support/random.mjs'
import { startHostileBot } from './lib/hostile-bot.mjs'
import { Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

const WITHIN_MS = 3000

export const what =
  'a bot SIGKILLed at a random instant leaves nothing, and its registry is clean after a reap'
export const full = 1000

export async function play(loop) {
  const registry = new StressRegistry()
  await loop.each((scope, round) =>
    playRound(loop, scope, registry, hostileTrees[round % hostileTrees.length]),
  )
  loop.count('unfinished files', registry.litter().length)
  await registry.close()
}

/**
 * Kills half of the bots within the few milliseconds in which they spawn their runs, and the others
 * later. Half of the reaps start at once, while the keepers work; the others start after the end of
 * all processes.
 */
async function playRound(loop, scope, registry, tree) {
  const whileSpawning = loop.random() < 0.5
  const reapAtOnce = loop.random() < 0.5
  const afterMs = loop.random() * (whileSpawning ? 10 : 50)
  const { bot, witness } = await startHostileBot(scope, { registry, tree, whileSpawning })
  await instant(afterMs)
  bot.kill('SIGKILL')
  await bot.ended
  const killedAt = performance.now()
  witness.release()

  const when = `${tree.name}, bot SIGKILLed ${afterMs.toFixed(3)} ms after ${whileSpawning ? 'it began to spawn' : 'its run was ready'}`
  if (whileSpawning) loop.count('while spawning')
  if (reapAtOnce) {
    const { decisions } = await registry.reap()
    // Without an entry there was no run. Then the holder of the witness is the bot's first helper,
    // between fork and exec.
    if (decisions.length > 0 && !witness.isGone()) {
      loop.count('reaped too early')
      const decided = decisions.map(({ record, ...decision }) => JSON.stringify(decision)).join('\n')
      loop.fail(
        new Wrong(
          `${when}: reapOrphans has resolved, but processes exist:\n${witness.holders()}\n${decided}`,
        ),
      )
    }
  }
  await gone(loop, witness, when)
  loop.time(performance.now() - killedAt)
  if (!reapAtOnce) await registry.reap()
  await registry.mustBeEmpty(`after a reap ${reapAtOnce ? 'at once' : 'later'} (${when})`)
}

async function gone(loop, witness, when) {
  try {
    await witness.gone(WITHIN_MS)
  } catch (error) {
    loop.count('survivors')
    throw new Wrong(`${when}: ${error.message}`)
  }
}
