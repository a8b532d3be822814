// Runs that outlive their bot (onOwnerExit: 'keep'): their keeper enforces the deadline and records
// how they end.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { assertAlive, assertGone, fileHas, freshRegistry, startBot, supervise } from '../support/bots.mjs'
import { treeNamed, treeOptions } from '../support/hostile-trees.mjs'
import { exited, keeping, keepingUntilOrder, kept } from '../support/kept-runs.mjs'
import { assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import { NO_KEEPER, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

describe("a run with onOwnerExit: 'keep'", together, () => {
  for (const tree of ['cleared-environment', 'half-setsid', 'hydra'].map(treeNamed)) {
    test(
      `survives the SIGKILL of its bot completely, and is adopted and cancelled: ${tree.name}`,
      treeOptions(tree, options),
      async (t) => {
        const { next, path, pid, runId, witness } = await kept(t, { tree })
        assertAlive(witness)
        const run = await next.adopt(runId)
        assert.deepEqual([run.runId, run.pid, run.state], [runId, pid, 'running'])
        assertAlive(witness)
        const waiting = run.wait()
        const exit = await run.cancel()
        assertGone(witness)
        assert.deepEqual([exit.runId, exit.reason, exit.survivors], [runId, 'manual-cancel', []])
        assert.deepEqual(await waiting, exit)
        assert.equal(run.state, 'exited')
        await fileHas(path, 0)
      },
    )
  }

  test('survives a bot that exits by itself', options, async (t) => {
    const { bot, next, runId, witness } = await keeping(t)
    await bot.kill('SIGTERM')
    assertAlive(witness)
    await (await next.adopt(runId)).cancel()
    assertGone(witness)
  })

  test("survives its bot, while a run with 'kill' of the same bot does not", options, async (t) => {
    const spared = await keeping(t)
    const { witness } = await keeping(t, { path: spared.path, bot: spared.bot, onOwnerExit: 'kill' })
    await spared.bot.kill()
    await witness.gone(20_000)
    assertAlive(spared.witness)
  })

  test(
    'ends at its deadline after its bot died, and its keeper records that',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      // Long enough to see the run alive after the death of its bot, also on a slow machine.
      const run = await kept(t, { timeoutMs: 4000, tree: treeNamed('half-setsid') })
      assertAlive(run.witness)
      await run.witness.gone(30_000)
      const { ending, survivors } = await exited(run)
      assert.deepEqual([ending, survivors], ['overall-timeout', 0])
      const exit = await (await run.next.adopt(run.runId)).wait()
      assert.deepEqual([exit.reason, exit.timedOut, exit.survivors], ['overall-timeout', true, []])
    },
  )

  test(
    'ends at its deadline even if its bot dies right after the start',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const witness = openWitness(t)
      // Each run holds the witness from its start, and the bot holds it until then.
      const stdio = ['ignore', 'ignore', 'ignore', { file: witness.path }]
      const runOptions = { stdio, timeoutMs: 700, graceMs: 300, onOwnerExit: 'keep' }
      for (let i = 0; i < 4; i++) {
        const bot = await startBot(t, freshRegistry())
        await assert.rejects(bot.ask('spawnAndDie', 3, program('stays'), [witness.path], runOptions))
      }
      witness.release()
      await witness.gone(30_000)
    },
  )

  test('is kept from the moment when spawnOwned returns', options, async (t) => {
    const path = freshRegistry()
    for (let i = 0; i < 4; i++) {
      const witness = openWitness(t)
      const bot = await startBot(t, path)
      await assert.rejects(
        bot.ask('spawnAndDie', 3, program('stays'), [witness.path], { onOwnerExit: 'keep' }),
      )
      // The channel of the bot closes before the bot is dead, and a bot that is exiting counts as
      // alive.
      await bot.kill()
      await witness.ready(3)
      const next = supervise(path)
      const runs = await Promise.all(next.list().map(({ runId }) => next.adopt(runId)))
      assert.equal(runs.length, 3)
      for (const run of runs) assert.equal(run.state, 'running')
      await Promise.all(runs.map((run) => run.cancel()))
      await witness.gone()
    }
  })

  test('counts as running even if its bot had no time to record that', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const [record] = next.list({ runId })
    const another = supervise(freshRegistry([{ ...record, state: 'starting' }]))
    const run = await another.adopt(runId)
    assert.equal(run.state, 'running')
    assert.equal(another.list()[0].state, 'running')
    await run.cancel()
    assertGone(witness)
  })

  test('ends at its deadline also after it was adopted', options, async (t) => {
    const { next, runId, witness } = await kept(t, { timeoutMs: 4000 })
    const run = await next.adopt(runId)
    const exit = await run.wait()
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.timedOut], ['overall-timeout', true])
  })

  test('keeps writing its output to its files', options, async (t) => {
    const folder = join(freshRegistry(), '..', '..')
    const [out, err] = [join(folder, 'out.log'), join(folder, 'err.log')]
    const { bot, next, runId, exitWith, witness } = await keepingUntilOrder(t, {
      stdio: ['ignore', { file: out }, { file: err }],
    })
    await bot.kill()
    const run = await next.adopt(runId)
    await exitWith(0)
    const exit = await run.wait()
    assertGone(witness)
    assert.equal(exit.exitCode, 0)
    assert.equal(readFileSync(out, 'utf8'), 'started\nread 0\n')
    assert.equal(readFileSync(err, 'utf8'), 'exiting with 0\n')
  })
})
