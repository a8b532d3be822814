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
 * Half of the instants lie within the few milliseconds in which the runs are being spawned, the others later. And half of the
 * reapers come at once, while the keepers are at work, the others when all is over.
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

  const when = `${tree.name}, bot SIGKILLed ${afterMs.toFixed(3)} ms after ${whileSpawning ? 'it began to spawn' : 'its run stood'}`
  if (whileSpawning) loop.count('while spawning')
  if (reapAtOnce) {
    const { decisions } = await registry.reap()
    // Without an entry there was no run: it is the bot's first helper, forked and not yet executed, that has the witness too.
    if (decisions.length > 0 && !witness.isGone()) {
      loop.count('reaped too early')
      const told = decisions.map(({ record, ...decision }) => JSON.stringify(decision)).join('\n')
      loop.fail(
        new Wrong(
          `${when}: processes exist although reapOrphans has resolved:\n${witness.holders()}\n${told}`,
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
