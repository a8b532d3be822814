// installSignalHandlers(): on a signal the bot first shuts down, then exits with the code of the
// signal.
// The bot's own handlers still run.
import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { assertAlive, assertGone, freshRegistry, startBot, supervise, until } from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { assert, CLEANED_UP, describe, FOR_EVER, openWitness, program, test } from '../support/prelude.mjs'
import {
  isWine,
  NO_SIGNALS,
  notUnderWine,
  posixOnly,
  WINE_CANNOT_ASK,
  windowsCommand,
  windowsOnly,
} from '../support/system.mjs'

const options = { timeout: 30_000 }
const together = { timeout: 60_000, concurrency: 4 }
const ignoresSigterm = { command: (path) => [program('marks-every-sigterm'), [path]], ready: 1 }
const tidy = { command: (path) => [program('cleans-up-on-sigterm'), [path]], ready: 2 }
const stays = { command: (path) => [program('stays'), [path]], ready: 1 }

/** Starts a bot with signal handlers and a run. */
async function bot(t, { tree = tidy, handlers = {}, ...more } = {}) {
  const path = freshRegistry()
  const it = await startBot(t, path)
  if (handlers !== null) await it.ask('installSignalHandlers', handlers)
  const { run, witness } = await another(t, it, tree, more)
  return { bot: it, noted: join(dirname(dirname(path)), 'noted'), path, run, witness }
}

async function another(t, bot, tree, more = {}) {
  const witness = openWitness(t)
  const run = await bot.ask('spawn', ...tree.command(witness.path), more)
  await witness.ready(tree.ready)
  return { run, witness }
}

const signalled = (witness) => until(() => witness.count(CLEANED_UP) > 0, 'the tree has got SIGTERM')
const shutdowns = (events) =>
  events.filter(({ type, phase }) => type === 'shutdown' && phase === 'end').length
const textOf = (file) => (existsSync(file) ? readFileSync(file, 'utf8') : '')

describe('on a signal', posixOnly(NO_SIGNALS, together), () => {
  for (const [signal, code] of Object.entries({ SIGINT: 130, SIGTERM: 143, SIGHUP: 129 })) {
    test(
      `the bot sends SIGTERM to its runs, and exits when they are gone: ${signal}, exit code ${code}`,
      options,
      async (t) => {
        const { bot: it, witness } = await bot(t)
        assert.equal(await it.kill(signal), code)
        assertGone(witness)
        // Without handlers the keeper would end the run too, but only after the end of the bot.
        assert.equal(witness.count(CLEANED_UP), 2)
      },
    )
  }

  test("the bot's own handlers run too, whether they were installed before or after", options, async (t) => {
    const { bot: it, noted, witness } = await bot(t, { handlers: null, tree: ignoresSigterm })
    await it.ask('handle', 'SIGTERM', noted)
    await it.ask('installSignalHandlers', { graceMs: FOR_EVER })
    await it.ask('handle', 'SIGTERM', noted)
    it.signal('SIGTERM')
    await signalled(witness)
    await until(() => textOf(noted) === 'SIGTERMSIGTERM', 'both handlers have run')
    assert.equal(await it.kill('SIGTERM'), 143)
    assertGone(witness)
    assert.equal(textOf(noted), 'SIGTERMSIGTERM'.repeat(2))
  })

  test(
    'a second signal ends the grace period, and the first signal decides the exit code',
    options,
    async (t) => {
      const { bot: it, witness } = await bot(t, { handlers: { graceMs: FOR_EVER }, tree: ignoresSigterm })
      it.signal('SIGINT')
      await signalled(witness)
      assertAlive(witness)
      assert.equal(await it.kill('SIGTERM'), 130)
      assertGone(witness)
      assert.equal(witness.count(CLEANED_UP), 1)
    },
  )

  test('the grace period is that of the handlers', options, async (t) => {
    const { bot: it, witness } = await bot(t, {
      handlers: { graceMs: 0 },
      tree: treeNamed('ignores-sigterm'),
    })
    assert.equal(await it.kill('SIGTERM'), 143)
    assertGone(witness)
  })

  test('kept runs outlive the bot, unless leaveKept is false', options, async (t) => {
    const lasting = await bot(t, { tree: stays, onOwnerExit: 'keep' })
    const passing = await another(t, lasting.bot, stays)
    assert.equal(await lasting.bot.kill('SIGTERM'), 143)
    assertGone(passing.witness)
    assertAlive(lasting.witness)
    await supervise(lasting.path).cancel(lasting.run.runId)
    assertGone(lasting.witness)

    const ended = await bot(t, { tree: stays, onOwnerExit: 'keep', handlers: { leaveKept: false } })
    assert.equal(await ended.bot.kill('SIGTERM'), 143)
    assertGone(ended.witness)
  })

  test('the default action remains for a signal without a handler', options, async (t) => {
    const { bot: it, witness } = await bot(t, { handlers: { signals: ['SIGUSR2', 'SIGHUP'] } })
    assert.equal(await it.kill('SIGTERM'), 'SIGTERM')
    await witness.gone(20_000)
    const chosen = await bot(t, { handlers: { signals: ['SIGUSR2', 'SIGHUP'] } })
    assert.equal(await chosen.bot.kill('SIGUSR2'), 128 + 12)
    assertGone(chosen.witness)
  })

  test('exit: false leaves the exit to the bot', options, async (t) => {
    const { bot: it, run, witness } = await bot(t, { handlers: { exit: false } })
    it.signal('SIGTERM')
    assert.equal((await it.ask('wait', run.runId)).reason, 'shutdown')
    assertGone(witness)
    await until(async () => shutdowns(await it.ask('events')) === 1, 'the shutdown has ended')
    const { run: next, witness: second } = await another(t, it, stays)
    it.signal('SIGTERM')
    assert.equal((await it.ask('wait', next.runId)).reason, 'shutdown', 'a second signal shuts down again')
    assertGone(second)
  })
})

describe('on CTRL_BREAK, the bot', windowsOnly(together), () => {
  for (const [name, tree] of Object.entries({
    'a tree that cleans up': tidy,
    'a tree with several groups': treeNamed('half-setsid'),
  })) {
    test(`exits with code 149 when its runs are gone: ${name}`, {
      ...windowsOnly(options),
      ...(isWine && { skip: WINE_CANNOT_ASK }),
    }, async (t) => {
      const path = freshRegistry()
      const order = join(dirname(dirname(path)), 'break')
      const it = await startBot(t, path, { within: [windowsCommand('leads-a-group'), order] })
      await it.ask('installSignalHandlers', { signals: ['SIGBREAK'], graceMs: 2000 })
      const { witness } = await another(t, it, tree)
      writeFileSync(order, '')
      assert.equal(await it.ended, 149)
      assertGone(witness)
      if (tree === tidy) assert.equal(witness.count(CLEANED_UP), 2)
    })
  }
})

describe('signal handlers', together, () => {
  test('restore the default action when they are removed', posixOnly(NO_SIGNALS, options), async (t) => {
    const { bot: it, noted, witness } = await bot(t, { tree: stays })
    await it.ask('handle', 'SIGHUP', noted)
    await it.ask('uninstallSignalHandlers')
    it.signal('SIGHUP')
    await until(() => textOf(noted) === 'SIGHUP', "the bot's own handler still runs")
    assertAlive(witness)
    assert.equal(await it.kill('SIGTERM'), 'SIGTERM')
    await witness.gone(20_000)
  })

  test(
    'are installed once, and a second call replaces the options',
    posixOnly(NO_SIGNALS, options),
    async (t) => {
      const { bot: it, witness } = await bot(t, {
        handlers: { graceMs: 0, signals: ['SIGINT'] },
        tree: ignoresSigterm,
      })
      await it.ask('installSignalHandlers', { graceMs: FOR_EVER })
      it.signal('SIGTERM')
      await signalled(witness)
      // A second set of handlers would have ended the run by now, or in the next turn of the event
      // loop.
      assert.equal((await it.ask('events')).filter(({ type }) => type === 'shutdown').length, 1)
      assertAlive(witness)
      assert.equal(await it.kill('SIGTERM'), 143)
      assertGone(witness)
    },
  )

  test('are removed by one call, however often they were installed', options, () => {
    const owner = supervise(freshRegistry())
    const count = () =>
      ['SIGINT', 'SIGTERM', 'SIGHUP', 'beforeExit'].map((name) => process.listenerCount(name))
    const before = count()
    const first = owner.installSignalHandlers()
    const second = owner.installSignalHandlers()
    assert.deepEqual(
      count(),
      before.map((count) => count + 1),
    )
    second()
    first()
    assert.deepEqual(count(), before)
  })

  test(
    'of several supervisors exit when the last shutdown has ended',
    posixOnly(NO_SIGNALS, options),
    async (t) => {
      const { bot: it, witness } = await bot(t, { tree: stays })
      const slow = openWitness(t)
      await it.ask(
        'besides',
        { registryPath: freshRegistry() },
        { graceMs: FOR_EVER },
        ...ignoresSigterm.command(slow.path),
      )
      await slow.ready(1)
      it.signal('SIGTERM')
      await until(async () => shutdowns(await it.ask('events')) === 1, 'the first shutdown has ended')
      assertGone(witness)
      assertAlive(slow)
      assert.equal(await it.kill('SIGTERM'), 143)
      assertGone(slow)
    },
  )
})

describe('a bot whose event loop is empty', together, () => {
  test(
    "ends unref'ed runs with SIGTERM first, and keeps its exit code",
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const { bot: it, run, witness } = await bot(t)
      await it.ask('unref', run.runId)
      await it.ask('letGo', 7)
      assert.equal(await it.ended, 7)
      assertGone(witness)
      assert.equal(witness.count(CLEANED_UP), 2)
    },
  )

  test('leaves kept runs alone, and exits', options, async (t) => {
    const { bot: it, path, run, witness } = await bot(t, { tree: stays, onOwnerExit: 'keep' })
    await it.ask('unref', run.runId)
    await it.ask('letGo', 0)
    assert.equal(await it.ended, 0)
    assertAlive(witness)
    await supervise(path).cancel(run.runId)
  })

  test('exits if it has no runs', options, async (t) => {
    const it = await startBot(t, freshRegistry())
    await it.ask('installSignalHandlers', {})
    await it.ask('letGo', 3)
    assert.equal(await it.ended, 3)
  })

  test("waits for the shutdown of unref'ed runs", options, async (t) => {
    const { bot: it, run, witness } = await bot(t, { handlers: null })
    await it.ask('unref', run.runId)
    const report = it.ask('shutdown', {})
    await it.ask('letGo', 0)
    assert.equal((await report).exits.length, 1)
    assertGone(witness)
    assert.equal(await it.ended, 0)
  })
})

describe('installSignalHandlers refuses', () => {
  const type = 'ERR_INVALID_ARG_TYPE'
  for (const [wrong, code, message] of [
    [7, type, /"options"/],
    [{ signals: 'SIGINT' }, type, /options\.signals/],
    [{ signals: [2] }, type, /options\.signals\[0\]/],
    [{ signals: ['SIGINT', 'SIGNONE'] }, 'ERR_UNKNOWN_SIGNAL', /SIGNONE/],
    [{ signals: ['SIGKILL'] }, 'ERR_INVALID_ARG_VALUE', /options\.signals\[0\].*Remove it/],
    [{ graceMs: -1 }, 'ERR_OUT_OF_RANGE', /options\.graceMs/],
    [{ exit: 0 }, type, /options\.exit/],
    [{ leaveKept: 'no' }, type, /options\.leaveKept/],
  ]) {
    test(JSON.stringify(wrong), () => {
      const before = process.listenerCount('SIGINT')
      const owner = supervise(freshRegistry())
      assert.throws(() => owner.installSignalHandlers(wrong), { code, message })
      assert.equal(process.listenerCount('SIGINT'), before)
    })
  }

  test('to run in a worker thread', options, async () => {
    const code = `const { parentPort } = require('node:worker_threads')
      try { require('spawn-owned').installSignalHandlers() } catch ({ code, message }) { parentPort.postMessage({ code, message }) }`
    const [{ code: errorCode, message }] = await once(new Worker(code, { eval: true }), 'message')
    assert.equal(errorCode, 'ERR_OWNED_NOT_MAIN_THREAD')
    assert.match(message, /main thread/)
  })
})
