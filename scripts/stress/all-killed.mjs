import { childrenOf, isHelper, stateOf, until } from '../../__test__/support/bots.mjs'
import { hostileTrees } from '../../__test__/support/hostile-trees.mjs'
import { instant } from '../../__test__/support/random.mjs'
import { Bystanders } from './lib/bystanders.mjs'
import { runIds, startHostileBot } from './lib/hostile-bot.mjs'
import { Scope, Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

/**
 * Without a keeper, the reaper finds a process by its group or its cookie. It cannot find a process
 * that has lost both.
 */
const trees = hostileTrees.filter(({ traceable }) => traceable)

export const what =
  'bot, zygote and keepers SIGKILLed together: reapOrphans ends what kept its group or its cookie'
export const full = 200

export const play = (loop) => playWith(loop, trees, 'keeper')

export async function playWith(loop, trees, containment) {
  const registry = new StressRegistry()
  const whole = new Scope()
  const bystanders = new Bystanders(whole, runIds[0], registry.supervisor)
  await loop.each((scope, round) =>
    playRound(loop, scope, registry, bystanders, trees[round % trees.length], containment),
  )
  await whole.close()
  loop.count('unfinished files', registry.litter().length)
  await registry.close()
}

async function playRound(loop, scope, registry, bystanders, tree, containment) {
  const whileSpawning = loop.random() < 0.3
  const stopFirst = loop.random() < 0.7
  const afterMs = loop.random() * (whileSpawning ? 10 : 30)
  const { bot, witness } = await startHostileBot(scope, { registry, tree, whileSpawning, containment })
  await instant(afterMs)
  await (stopFirst ? killWithHelpers(loop, bot) : killedAtOnce(loop, bot))
  witness.release()

  const when = `${tree.name}, ${afterMs.toFixed(3)} ms after ${whileSpawning ? 'the bot began to spawn' : 'its run was ready'}`
  const alive = !witness.isGone()
  if (alive) loop.count('left to the reaper')
  const since = performance.now()
  const { killed } = await registry.reap()
  if (!witness.isGone()) {
    loop.count('survivors')
    throw new Wrong(`${when}: processes exist after the reap of ${killed}:\n${witness.holders()}`)
  }
  if (alive) loop.time(performance.now() - since)
  bystanders.mustLive(loop, when)
  await registry.mustBeEmpty(`after a reap (${when})`)
}

/**
 * Kills a bot, its zygotes and its keepers. It stops all of them first, so that none reacts to the
 * death of another.
 */
export async function killWithHelpers(loop, bot) {
  await stopAll(bot)
  await killedAtOnce(loop, bot)
}

async function killedAtOnce(loop, bot) {
  killAll(loop, bot)
  await bot.ended
}

async function stopAll(bot) {
  await stop(bot.pid)
  for (const zygote of helpersBelow(bot.pid)) await stop(zygote)
}

async function stop(pid) {
  process.kill(pid, 'SIGSTOP')
  await until(() => stateOf(pid) === 'T', `process ${pid} has stopped`)
}

/** Kills in random order. */
function killAll(loop, bot) {
  const zygotes = helpersBelow(bot.pid)
  const victims = [bot.pid, ...zygotes, ...zygotes.flatMap(helpersBelow)]
  for (const pid of shuffled(victims, loop.random)) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch (error) {
      // Spare keepers exit when their bot ends.
      if (error.code !== 'ESRCH') throw error
    }
  }
}

const helpersBelow = (pid) => childrenOf(pid).filter(isHelper)

function shuffled(list, random) {
  const left = [...list]
  return list.map(() => left.splice(Math.floor(random() * left.length), 1)[0])
}
