// A cancel from another process ends the run although its bot or its keeper is stopped, dead or
// replaced by an impostor.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  assertGone,
  fileHas,
  freshRegistry,
  gone,
  keeperOf,
  startBot,
  stopKeeper,
  supervise,
  until,
} from '../support/bots.mjs'
import { assertCancelled, runOfAnotherBot } from '../support/cancelled-runs.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { assert, describe, library, options, program, test } from '../support/prelude.mjs'
import { linuxOnly, NO_KEEPER, NO_PRELOADING, NO_STOPPING, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

describe('cancel ends the run although', together, () => {
  test('the bot is dead and the run was kept', options, async (t) => {
    const run = await runOfAnotherBot(t, { onOwnerExit: 'keep' })
    await run.bot.kill()
    const { outcome, exits } = await run.here.cancel(run.runId)
    assertGone(run.witness)
    assert.deepEqual([outcome, exits[0].reason], ['cancelled', 'manual-cancel'])
    await fileHas(run.path, 0)
    assert.deepEqual(run.here.list(), [])
  })

  test('the bot and the keeper are dead', posixOnly(NO_KEEPER, options), async (t) => {
    const run = await runOfAnotherBot(t, { tree: treeNamed('half-setsid') })
    await run.bot.killWithHelpers()
    const { outcome, exits } = await run.here.cancel(run.runId)
    assertGone(run.witness)
    assert.deepEqual([outcome, exits[0].survivors], ['cancelled', []])
    await fileHas(run.path, 0)
    assert.deepEqual(run.here.list(), [])
  })

  test('the bot is stopped', posixOnly(NO_STOPPING, options), async (t) => {
    const run = await runOfAnotherBot(t)
    run.bot.signal('SIGSTOP')
    const result = await run.here.cancel(run.runId)
    assertGone(run.witness)
    run.bot.signal('SIGCONT')
    await assertCancelled(run, result)
  })

  test('the bot has not assigned the run to the keeper yet', linuxOnly(NO_PRELOADING, options), async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path, { env: { LD_PRELOAD: library('holds-the-native-thread') } })
    const run = await runOfAnotherBot(t, { path, bot })
    const { outcome, exits } = await run.here.cancel(run.runId)
    assertGone(run.witness)
    assert.deepEqual([outcome, exits.map(({ reason }) => reason)], ['cancelled', ['manual-cancel']])
  })

  test('the keeper is stopped', posixOnly(NO_KEEPER, options), async (t) => {
    const run = await runOfAnotherBot(t)
    await stopKeeper(t, run.here.list()[0])
    await assertCancelled(run, await run.here.cancel(run.runId))
  })

  test('the keeper is stopped again and again', posixOnly(NO_KEEPER, options), async (t) => {
    const run = await runOfAnotherBot(t, { tree: treeNamed('half-setsid') })
    const keeper = keeperOf(run.here.list()[0])
    const stop = () => {
      try {
        process.kill(keeper, 'SIGSTOP')
      } catch {
        clearInterval(stopping)
      }
    }
    const stopping = setInterval(stop, 1)
    t.after(() => clearInterval(stopping))
    const { outcome } = await run.here.cancel(run.runId, { graceMs: 0 })
    assertGone(run.witness)
    assert.equal(outcome, 'cancelled')
    clearInterval(stopping)
  })
})

describe(
  'cancel sends nothing to an impostor at the address of the keeper',
  posixOnly(NO_KEEPER, together),
  () => {
    /**
     * Starts a process that reads what the keeper at `address` sends to control clients, and can then
     * send the same at `impostorAddress`.
     */
    async function impostor(t, address, impostorAddress) {
      const child = spawn(program('keeper-impostor'), [address, impostorAddress], {
        stdio: ['pipe', 'pipe', 'inherit'],
      })
      t.after(() => child.kill('SIGKILL'))
      const closed = once(child, 'close')
      let output = ''
      child.stdout.on('data', (text) => {
        output += text
      })
      await until(() => output === 'read\n', 'the impostor has read the message of the keeper')
      return {
        async listen() {
          child.stdin.write('\n')
          await until(() => output === 'read\nlistening\n', 'the impostor listens')
        },
        /** Ends the impostor and returns the requests that it got. */
        async requests() {
          child.stdin.end()
          await closed
          return output.slice('read\nlistening\n'.length)
        },
      }
    }

    test('when the keeper is dead', options, async (t) => {
      const run = await runOfAnotherBot(t, { tree: treeNamed('half-setsid') })
      const [{ keeper }] = run.here.list()
      const fake = await impostor(t, keeper.address, keeper.address)
      await run.bot.killWithHelpers()
      await fake.listen()
      const { outcome } = await run.here.cancel(run.runId)
      assertGone(run.witness)
      assert.equal(outcome, 'cancelled')
      assert.equal(await fake.requests(), '')
    })

    test('when the keeper lives and the record names another address', options, async (t) => {
      const run = await runOfAnotherBot(t, { tree: treeNamed('half-setsid') })
      const [record] = run.here.list()
      const address = `impostor-${process.pid}`
      const fake = await impostor(t, record.keeper.address, address)
      await fake.listen()
      const here = supervise(freshRegistry([{ ...record, keeper: { ...record.keeper, address } }]))
      const { outcome, exits } = await here.cancel(run.runId)
      assertGone(run.witness)
      assert.deepEqual([outcome, exits[0].survivors], ['cancelled', []])
      assert.equal(await fake.requests(), '')
      await gone(keeperOf(record))
    })
  },
)
