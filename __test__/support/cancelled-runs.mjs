// Runs of another bot, to be cancelled from here.
import { assertGone, freshRegistry, startBot, supervise, until } from './bots.mjs'
import { elusiveTree } from './hostile-trees.mjs'
import { assert, openWitness } from './prelude.mjs'

/**
 * Starts a run in another bot. This process knows only the registry. By default the run has left
 * its session and cleared its environment.
 */
export async function runOfAnotherBot(t, { tree = elusiveTree(), path, bot, ...more } = {}) {
  path ??= freshRegistry()
  bot ??= await startBot(t, path)
  const witness = openWitness(t)
  const [command, args] = tree.command(witness.path)
  const { runId, pid } = await bot.ask('spawn', command, args, { graceMs: 300, ...more })
  await witness.ready(tree.ready)
  return { bot, here: supervise(path), path, pid, runId, witness }
}

/** Checks everything that must hold after a cancel from another process. */
export async function assertCancelled({ bot, pid, runId, witness, here }, result, reason = 'manual-cancel') {
  assertGone(witness)
  assert.deepEqual(Object.keys(result).toSorted(), ['exits', 'outcome'])
  assert.equal(result.outcome, 'cancelled')
  const [exit] = result.exits
  assert.deepEqual([result.exits.length, exit.runId, exit.reason], [1, runId, reason])
  assert.deepEqual([exit.survivors, exit.escaped], [[], []])
  assert.ok(exit.message.length > 0 && exit.durationMs > 0)
  const ofOwner = await bot.ask('wait', runId)
  assert.deepEqual([ofOwner.runId, ofOwner.reason, ofOwner.survivors], [runId, reason, []])
  assert.deepEqual([ofOwner.exitCode, ofOwner.signal], [exit.exitCode, exit.signal])
  await until(() => here.list({ pid }).length === 0, 'the registry entry is gone')
}
