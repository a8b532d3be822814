// When a bot ends in any way, its runs end too, and no other process has to clean up later.
// STRESS_ROUNDS=1000 kills that many bots instead of a few. SEED repeats the instants of an earlier
// run.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { freshRegistry } from '../support/bots.mjs'
import { hostileTrees, missingTrees, treeNamed, treeOptions } from '../support/hostile-trees.mjs'
import { after, assert, describe, openWitness, script, test } from '../support/prelude.mjs'
import { instant, randomFor, seed } from '../support/random.mjs'
import { notUnderWine, WINE_CANNOT_ASK, WINE_LETS_SLIP } from '../support/system.mjs'

/** Less than the default grace of 5 s. */
const WITHIN_MS = 4500
const KILLS = Number(process.env.STRESS_ROUNDS ?? 39)
const killsPerTree = Math.ceil(KILLS / hostileTrees.length)
const figures = []

/**
 * Starts a bot that is about to spawn `runs` runs of `tree`. From here on, only the bot and its
 * runs hold the witness.
 */
async function startBot(t, witness, tree, { runs = 1, graceMs } = {}) {
  const [command, args] = tree.command(witness.path)
  const task = JSON.stringify({ command, args, runs, graceMs })
  const bot = spawn(process.execPath, [script('bot.mjs'), task], {
    cwd: witness.dir,
    // Not in the folder of the witness: that folder is removed while a keeper can still record how
    // its run ended.
    env: { ...process.env, SPAWN_OWNED_REGISTRY: process.env.SPAWN_OWNED_REGISTRY ?? freshRegistry() },
    stdio: ['pipe', 'pipe', 'pipe', witness.writeEnd, 'pipe'],
  })
  t.after(() => bot.stdio[4].destroy() && bot.stdin.destroy())
  bot.stdin.on('error', () => {})
  bot.stderrText = ''
  bot.stderr.on('data', (text) => (bot.stderrText += text))
  bot.ended = once(bot, 'exit')
  await Promise.race([once(bot.stdout, 'data'), bot.ended])
  assert.equal(bot.exitCode, null, `the bot ended before it spawned:\n${bot.stderrText}`)
  return bot
}

/** Waits until the bot and the tree have ended. Resolves with the milliseconds that this took. */
async function waitUntilAllEnded(witness, bot, what) {
  witness.release()
  try {
    return await witness.gone(WITHIN_MS)
  } catch (error) {
    throw new Error(`${what} (SEED=${seed}): ${error.message}\n${bot.stderrText}`)
  }
}

// In every second round the bot is killed in the few milliseconds in which it spawns its runs, in
// the others later.
async function killAtRandomInstant(t, tree, random, whileSpawning) {
  const witness = openWitness(t)
  const afterMs = random() * (whileSpawning ? 10 : 50)
  const runs = whileSpawning ? 3 : 1
  const bot = await startBot(t, witness, tree, { runs, graceMs: 300 })
  if (!whileSpawning) await witness.ready(tree.ready)
  await instant(afterMs)
  bot.kill('SIGKILL')
  const when = whileSpawning ? 'after it began to spawn' : 'after its run was ready'
  const ms = await waitUntilAllEnded(witness, bot, `bot SIGKILLed ${afterMs.toFixed(3)} ms ${when}`)
  figures.push({ tree: tree.name, whileSpawning, ms })
  witness.close()
}

describe('a bot SIGKILLed at random instants leaves no process of', { concurrency: 2 }, () => {
  const options = { timeout: 30_000 + killsPerTree * 5000 }
  for (const tree of hostileTrees) {
    const isHydra = tree.name.startsWith('hydra')
    test(tree.name, isHydra ? notUnderWine(WINE_LETS_SLIP, options) : options, async (t) => {
      const random = randomFor(tree.name)
      for (let round = 0; round < killsPerTree; round++) {
        await killAtRandomInstant(t, tree, random, round % 2 === 0)
      }
    })
  }

  for (const { name, why } of missingTrees) test(name, { skip: why })

  after(() => {
    const times = figures.map(({ ms }) => ms).sort((a, b) => a - b)
    const early = figures.filter(({ whileSpawning }) => whileSpawning).length
    const at = (share) => times[Math.floor(share * (times.length - 1))]?.toFixed(0)
    const spread = `p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, max ${at(1)} ms`
    console.log(
      `${times.length} bots SIGKILLed, ${early} while spawning; all processes ended after ${spread} (SEED=${seed})`,
    )
  })
})

// A run without its own graceMs does not get the default of 5 s here, because no bot is left to
// benefit from it.
describe('a bot leaves no process when it ends by', { concurrency: 2 }, () => {
  const sendOrder = (order) => (bot) => bot.stdin.write(order)
  const endings = [
    { name: 'process.exit()', end: sendOrder('process.exit()'), expected: [0, null] },
    { name: 'an uncaught exception', end: sendOrder('an uncaught exception'), expected: [1, null] },
    { name: 'nothing left to do', end: sendOrder('nothing left to do'), expected: [0, null] },
    { name: 'SIGTERM', end: (bot) => bot.kill('SIGTERM'), expected: [null, 'SIGTERM'] },
    { name: 'SIGINT', end: (bot) => bot.kill('SIGINT'), expected: [null, 'SIGINT'] },
  ]
  const options = { timeout: 120_000 }
  for (const { name, end, expected } of endings) {
    for (const tree of ['half-setsid', 'cleared-environment', 'ignores-sigterm'].map(treeNamed)) {
      test(`${name}: ${tree.name}`, treeOptions(tree, options), async (t) => {
        const witness = openWitness(t)
        const bot = await startBot(t, witness, tree)
        await witness.ready(tree.ready)
        end(bot)
        assert.deepEqual(await bot.ended, expected, bot.stderrText)
        await waitUntilAllEnded(witness, bot, `bot ended by ${name}`)
      })
    }
  }

  test('SIGKILL during a cancel with a long grace', notUnderWine(WINE_CANNOT_ASK, options), async (t) => {
    const witness = openWitness(t)
    const tree = treeNamed('ignores-sigterm')
    const bot = await startBot(t, witness, tree)
    await witness.ready(tree.ready)
    bot.stdin.write('a patient cancel')
    await once(bot.stdout, 'data')
    assert.equal(witness.isGone(), false)
    bot.kill('SIGKILL')
    await waitUntilAllEnded(witness, bot, 'bot SIGKILLed while it cancelled')
  })
})
