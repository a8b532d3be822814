// What a caller can change about a run after its start: timeouts, labels and metadata.
import { once } from 'node:events'
import { assertGone, entriesOf, freshRegistry, startBot, supervise, until } from '../support/bots.mjs'
import { spawnOwnedCli } from '../support/cli.mjs'
import { LONG_MS, SILENCE_MS, silent, standing, talking } from '../support/deadlines.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { NO_KEEPER, notUnderWine, posixOnly, WINE_CANNOT_ASK } from '../support/system.mjs'

const options = { timeout: 60_000 }
const path = freshRegistry()
const supervisor = supervise(path, { graceMs: 0 })
const waits = [
  '-e',
  'process.stdin.on("data", (text) => process.stdout.write(text)); setInterval(() => {}, 1e6)',
]
const clock = new Int32Array(new SharedArrayBuffer(4))

/** Blocks the event loop until `check` is true. */
function blockUntil(check) {
  const giveUpAt = performance.now() + 60_000
  while (!check()) {
    assert.ok(performance.now() < giveUpAt, 'it did not happen within a minute')
    Atomics.wait(clock, 0, 0, 10)
  }
}

const start = (more) => supervisor.spawnOwned(process.execPath, waits, more)

describe('setDeadline', options, () => {
  test('arms a timeout of a run without one', async () => {
    const child = start()
    assert.equal(child.setDeadline({ timeoutMs: 200 }), true)
    const exit = await child.wait()
    assert.deepEqual(
      [exit.reason, exit.timedOut, exit.message, child.killed],
      ['overall-timeout', true, 'turn timed out after 0.2s', true],
    )
    assert.equal(child.setDeadline({ timeoutMs: 1 }), false, 'the run has ended')
  })

  test('shortens a timeout, and counts from the call', async () => {
    const child = start({ timeoutMs: 600_000 })
    child.setDeadline({ timeoutMs: 200 })
    const { reason, durationMs } = await child.wait()
    assert.equal(reason, 'overall-timeout')
    assert.ok(durationMs >= 200 && durationMs < 60_000, `after ${durationMs} ms`)
  })

  test('removes a timeout', async () => {
    const [child, other] = [start({ timeoutMs: 500 }), start({ timeoutMs: 600 })]
    assert.equal(child.setDeadline({ timeoutMs: 0 }), true)
    assert.equal((await other.wait()).reason, 'overall-timeout')
    assert.equal(child.state, 'running')
    assert.equal((await child.cancel()).reason, 'manual-cancel')
  })

  test('arms an idle timeout, which output restarts', async () => {
    const child = start()
    child.stdout.resume()
    child.stdin.write('x')
    await once(child.stdout, 'data')
    // Forty times as long as between two writes: a busy machine delays a write, but not that long.
    assert.equal(child.setDeadline({ noOutputTimeoutMs: 2000 }), true)
    const began = performance.now()
    const timer = setInterval(() => child.stdin.write('x'), 50)
    setTimeout(() => clearInterval(timer), 2500)
    const { reason, noOutputTimedOut, message } = await child.wait()
    assert.deepEqual([reason, noOutputTimedOut, message], ['no-output-timeout', true, 'no output for 2s'])
    assert.ok(performance.now() - began > 2500)
  })

  test('removes an idle timeout, also after more output', async () => {
    const [child, other] = [start({ noOutputTimeoutMs: 500 }), start({ timeoutMs: 1500 })]
    child.stdout.resume()
    child.setDeadline({ noOutputTimeoutMs: 0 })
    child.stdin.write('x')
    await once(child.stdout, 'data')
    assert.equal((await other.wait()).reason, 'overall-timeout')
    assert.equal(child.state, 'running')
    await child.cancel()
  })

  test('leaves the other timeout as it is, and warns', async () => {
    const child = start({ noOutputTimeoutMs: 500 })
    child.stdout.resume()
    child.setDeadline({ timeoutMs: 600_000 })
    assert.equal((await child.wait()).reason, 'no-output-timeout')
    const warnings = supervisor.events.filter(
      ({ type, runId }) => type === 'deadline-warning' && runId === child.runId,
    )
    assert.deepEqual(
      warnings.map(({ deadline, limitMs }) => [deadline, limitMs]),
      [['no-output', 500]],
    )
  })

  test('and extendDeadline extends it', async () => {
    const [child, other] = [start(), start({ timeoutMs: 800 })]
    child.setDeadline({ timeoutMs: 500 })
    assert.equal(child.extendDeadline(600_000), true)
    await other.wait()
    assert.equal(child.state, 'running')
    await child.cancel()
  })

  test('counts as a timeout in the metrics', async () => {
    const here = supervise(freshRegistry(), { graceMs: 0 })
    const child = here.spawnOwned(process.execPath, waits)
    child.setDeadline({ timeoutMs: 200 })
    await child.wait()
    assert.equal(here.metrics().run_timeout_total.overall, 1)
  })

  test('is enforced although the event loop is blocked', async (t) => {
    for (const deadline of [{ timeoutMs: 300 }, { noOutputTimeoutMs: 300 }]) {
      const { child, witness } = await standing(t, silent())
      assert.equal(child.setDeadline(deadline), true)
      blockUntil(() => witness.isGone())
      assert.equal(child.state, 'running', 'the event loop has not run since')
      assert.equal((await child.wait()).timedOut, true)
    }
  })

  test('does not take a blocked event loop for an idle command', async (t) => {
    const { child } = await standing(t, talking(1))
    child.stdout.resume()
    await once(child.stdout, 'data')
    assert.equal(child.setDeadline({ noOutputTimeoutMs: SILENCE_MS }), true)
    const from = performance.now()
    blockUntil(() => performance.now() - from > LONG_MS)
    await once(child.stdout, 'data')
    assert.equal((await child.cancel({ signal: 'SIGKILL' })).reason, 'manual-cancel')
  })

  test('is enforced after the death of the bot, if the run is kept', posixOnly(NO_KEEPER), async (t) => {
    const registry = freshRegistry()
    const bot = await startBot(t, registry)
    const witness = openWitness(t)
    const kept = { onOwnerExit: 'keep', graceMs: 1000, timeoutMs: 600_000 }
    const { runId } = await bot.ask('spawn', program('stays'), [witness.path], kept)
    await witness.ready(1)
    await until(() => entriesOf(registry)[0]?.state === 'running', 'the entry is written')
    assert.equal(await bot.ask('setDeadline', runId, { timeoutMs: 1000 }), true)
    await bot.kill()
    await witness.gone(60_000)
    await until(() => entriesOf(registry)[0]?.exit, 'the entry has the exit')
    const exit = await (await supervise(registry).adopt(runId)).wait()
    assert.deepEqual([exit.reason, exit.message], ['overall-timeout', 'turn timed out after 1s'])
  })

  const tree = [program('ignores-sigterm'), []]

  test('does not replace the cause of a cancel that has begun', async (t) => {
    const own = await standing(t, tree, { ready: 2 })
    const cancelled = own.child.cancel({ graceMs: 500 })
    assert.equal(own.child.setDeadline({ timeoutMs: 1, noOutputTimeoutMs: 1 }), false)
    assert.equal((await cancelled).reason, 'manual-cancel')
  })

  test('does not replace the cause of another bot', notUnderWine(WINE_CANNOT_ASK), async (t) => {
    // The keeper ends the tree for another bot, and this bot has not got that event yet.
    const run = await standing(t, tree, { ready: 2 })
    const bot = await startBot(t, run.here.registryPath)
    const other = bot.ask('cancel', run.child.runId, { graceMs: 3000 })
    blockUntil(() => run.here.list()[0]?.state === 'exiting')
    assert.equal(run.child.state, 'running')
    assert.equal(run.child.setDeadline({ timeoutMs: 1 }), false)
    const { reason, timedOut } = await run.child.wait()
    assert.deepEqual([reason, timedOut, (await other).outcome], ['manual-cancel', false, 'cancelled'])
  })

  test('refuses invalid values', async () => {
    const child = start({ stdio: 'ignore' })
    for (const [wrong, code] of [
      [undefined, 'ERR_INVALID_ARG_TYPE'],
      [{ timeout: 1 }, 'ERR_INVALID_ARG_VALUE'],
      [{ timeoutMs: '1' }, 'ERR_INVALID_ARG_TYPE'],
      [{ timeoutMs: -1 }, 'ERR_OUT_OF_RANGE'],
      [{ noOutputTimeoutMs: 5 }, 'ERR_INVALID_ARG_VALUE'],
    ])
      assert.throws(() => child.setDeadline(wrong), { code })
    await child.cancel()
  })
})

describe('update and metadata', options, () => {
  test('change the live entry, in memory, in the registry and in filters', async () => {
    const child = start({ labels: { agent: 'a' }, metadata: { turn: 1, nested: ['x'] } })
    const entry = () => supervisor.list({ runId: child.runId })[0]
    assert.deepEqual([entry().labels, entry().metadata], [{ agent: 'a' }, { turn: 1, nested: ['x'] }])
    assert.deepEqual(child.metadata, { turn: 1, nested: ['x'] })
    child.update({ labels: { phase: 'review' } })
    assert.deepEqual(entry().labels, { agent: 'a', phase: 'review' })
    assert.deepEqual(entry().metadata, { turn: 1, nested: ['x'] })
    child.update({ metadata: { turn: 2 }, labels: { agent: 'b' } })
    assert.deepEqual([child.labels, child.metadata], [{ agent: 'b', phase: 'review' }, { turn: 2 }])
    await until(() => entriesOf(path).some(({ metadata }) => metadata?.turn === 2), 'the file has it')
    const other = supervise(path)
    assert.deepEqual(other.list({ labels: { phase: 'review' } })[0].metadata, { turn: 2 })
    child.update({ metadata: null })
    assert.equal('metadata' in entry(), false)
    assert.equal((await supervisor.cancel({ labels: { phase: 'review' } })).outcome, 'cancelled')
    child.update({ labels: { phase: 'over' } })
    assert.deepEqual(supervisor.list(), [])
  })

  test('have limits that the error names', async () => {
    const large = { text: 'x'.repeat(4096) }
    const message = /at most 4096 bytes of JSON/
    assert.throws(() => start({ metadata: large }), { code: 'ERR_OUT_OF_RANGE', message })
    const child = start({ metadata: { text: 'x'.repeat(4000) } })
    assert.throws(() => child.update({ metadata: large }), { code: 'ERR_OUT_OF_RANGE', message })
    // The registry's parser refuses deeper files as a whole.
    const nested = (levels) => JSON.parse('['.repeat(levels) + ']'.repeat(levels))
    for (const levels of [33, 127])
      assert.throws(() => child.update({ metadata: nested(levels) }), {
        code: 'ERR_OUT_OF_RANGE',
        message: new RegExp(`at most 32 levels.*Received ${levels} levels`),
      })
    child.update({ metadata: nested(32) })
    child.update({ metadata: { text: '['.repeat(100), quote: '\\"[' } })
    const cycle = {}
    cycle.cycle = cycle
    assert.throws(() => child.update({ metadata: cycle }), { code: 'ERR_INVALID_ARG_VALUE' })
    assert.throws(() => child.update({ metadata: () => {} }), { code: 'ERR_INVALID_ARG_TYPE' })
    assert.throws(() => child.update({ labels: { a: 1 } }), { code: 'ERR_INVALID_ARG_TYPE' })
    assert.throws(() => child.update({ label: { a: '1' } }), { code: 'ERR_INVALID_ARG_VALUE' })
    await child.cancel()
  })
})

describe('a run id', options, () => {
  test('has letters, digits and . _ - : @ +, and is found everywhere', async () => {
    for (const runId of ['worker:7@host+1._-', ':', '@a', 'x'.repeat(128)]) {
      const code = 'console.log(process.env.SPAWN_OWNED_RUN)'
      const { stdout, ok } = await supervisor.run(process.execPath, ['-e', code], { runId })
      assert.equal(ok, true)
      const elements = stdout.trim().split(':')
      assert.equal(elements.at(-2), runId.replaceAll(':', '%3A'))
      assert.match(elements.at(-1), /^~[0-9a-f]{32}$/)
      const child = start({ runId })
      assert.equal(supervisor.list({ runId }).length, 1)
      assert.equal((await supervise(path).cancel(runId, { graceMs: 0 })).outcome, 'cancelled')
      await child.wait()
    }
  })

  test('has no other characters, and does not begin with a dot', () => {
    for (const runId of ['', '.', '.hidden', '..', 'a/b', 'a b', 'a%', 'a\\b', 'ż', 'a\n', 'x'.repeat(129)])
      assert.throws(() => start({ runId }), { code: 'ERR_INVALID_ARG_VALUE' })
  })
})

describe('a bot that registers itself', options, () => {
  test('is not reported as exited by a cancel of a process that it has started', async () => {
    const own = supervise(freshRegistry())
    own.registerProcess({ pid: process.pid, runId: 'me' })
    const { code, stdout } = await spawnOwnedCli(own.registryPath, ['cancel', 'me', '--json'])
    assert.equal(code, 1, stdout)
    assert.equal(own.list()[0]?.state, 'running')
    own.unregisterProcess('me')
  })

  test('is listed and found, and never signals itself', async () => {
    const own = supervise(freshRegistry())
    const record = own.registerProcess({ pid: process.pid, runId: 'me', labels: { kind: 'bot' } })
    assert.deepEqual([record.pid, record.botPid], [process.pid, process.pid])
    assert.equal(own.list({ labels: { kind: 'bot' } })[0].state, 'running')
    for (const target of ['me', { pid: process.pid }, { labels: { kind: 'bot' } }])
      await assert.rejects(own.cancel(target, { graceMs: 0 }), { code: 'ERR_OWNED_PROTECTED_PROCESS' })
    assert.deepEqual((await own.shutdown({ graceMs: 0 })).exits, [])
    assert.deepEqual((await own.reapOrphans()).killed, [])
    assert.equal(own.list().length, 1)
    assert.equal(own.unregisterProcess('me'), true)
    assert.deepEqual(own.list(), [])
  })

  test('is terminated by the cancel of another bot, and its kept run is not', async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const [kept, other] = [openWitness(t), openWitness(t)]
    await bot.ask('spawn', program('stays'), [kept.path], { runId: 'kept', onOwnerExit: 'keep' })
    await bot.ask('spawn', program('stays'), [other.path], { runId: 'other' })
    await Promise.all([kept.ready(1), other.ready(1)])
    await bot.ask('register', { pid: bot.pid, runId: 'the-bot' })
    const here = supervise(path)
    const { outcome, exits } = await here.cancel('the-bot', { graceMs: 0 })
    assert.deepEqual([outcome, exits.map(({ survivors }) => survivors)], ['cancelled', [[]]])
    await bot.ended
    await other.gone(30_000)
    assert.equal(kept.isGone(), false)
    assert.equal((await here.cancel('kept', { graceMs: 0 })).outcome, 'cancelled')
    assertGone(kept)
  })

  test('is not reported as exited by a cancel of another supervisor in it, or by a reap', async () => {
    const path = freshRegistry()
    const own = supervise(path)
    own.registerProcess({ pid: process.pid, runId: 'me' })
    const other = supervise(path)
    for (const target of ['me', { pid: process.pid }])
      await assert.rejects(other.cancel(target, { graceMs: 0 }), { code: 'ERR_OWNED_PROTECTED_PROCESS' })
    const { killed, alreadyDead, ended } = await other.reapOrphans()
    assert.deepEqual([killed, alreadyDead, ended], [[], [], []])
    for (const { state, pid } of [...own.list(), ...other.list()])
      assert.deepEqual([state, pid], ['running', process.pid])
    assert.equal(other.list().length, 1)
    own.unregisterProcess('me')
  })
})
