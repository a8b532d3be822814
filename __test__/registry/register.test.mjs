// registerProcess: processes that were not started by spawnOwned. The record has their real process
// group. A group that they do not lead is never signalled.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { captureStartToken } from 'spawn-owned'
import {
  assertAlive,
  assertGone,
  bystander,
  entriesOf,
  fileHas,
  freshRegistry,
  neverWaitedFor,
  startBot,
  statOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { inNamespace, namespace } from '../support/namespace.mjs'
import { assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import { child, noEntry } from '../support/registered.mjs'
import { isWindows, NO_SESSIONS, NO_ZOMBIES, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

describe('registerProcess records', together, () => {
  test('all options and the facts of the kernel', options, async (t) => {
    const path = freshRegistry()
    const here = supervise(path, { graceMs: 1234 })
    // The process is alone in its group. Otherwise the bot would soon add members to the entry.
    const { pid } = await child(t, { name: 'stays', processes: 1 })
    const before = Date.now()
    const record = here.registerProcess({
      pid,
      runId: 'mine',
      sessionId: 's',
      backendId: 'b',
      scopeKey: 'k',
      labels: { agent: 'claude' },
      commandPreview: 'claude\n--print',
    })
    assert.ok(Object.isFrozen(record))
    const { startedAt, createdAtMs, updatedAtMs, leaseExpiresAtMs, ...rest } = record
    assert.deepEqual(rest, {
      pid,
      sessionId: 's',
      botPid: process.pid,
      commandPreview: 'claude --print',
      runId: 'mine',
      state: 'running',
      startToken: captureStartToken(pid),
      botStartToken: captureStartToken(process.pid),
      ownerInstanceId: here.instanceId,
      ...(isWindows
        ? { pgid: null, containment: 'job', job: record.job }
        : { pgid: pid, containment: 'group' }),
      backendId: 'b',
      scopeKey: 'k',
      labels: { agent: 'claude' },
      graceMs: 1234,
      onOwnerExit: 'keep',
      lastOutputAtMs: null,
    })
    assert.ok(startedAt <= before && startedAt > before - 30_000, `${startedAt} ${before}`)
    assert.ok(createdAtMs >= before && updatedAtMs >= before && leaseExpiresAtMs > before + 10_000)
    assert.deepEqual(here.list({ labels: { agent: 'claude' } }), [record])
    await fileHas(path, 1)
    assert.equal(entriesOf(path)[0].startToken, record.startToken)
    await here.cancel('mine', { graceMs: 0 })
  })

  test('the real process group of the process', posixOnly(NO_SESSIONS, options), async (t) => {
    const here = supervise(freshRegistry())
    const { pid } = await child(t, { detached: false })
    const record = here.registerProcess({ pid })
    assert.deepEqual([record.pgid, record.containment], [statOf(process.pid).group, 'process'])
    assert.notEqual(record.pgid, pid)
    await here.cancel({ pid }, { graceMs: 0 })
  })

  test('a generated run id if none is given', options, async (t) => {
    const here = supervise(freshRegistry())
    const { pid } = await child(t)
    assert.match(here.registerProcess({ pid }).runId, /^[\w.-]{1,128}$/)
    await here.cancel({ pid }, { graceMs: 0 })
  })
})

test('registerProcess records a process whose group has no PID in this namespace', inNamespace, async (t) => {
  const path = freshRegistry()
  const bot = await startBot(t, path, { within: namespace })
  const witness = openWitness(t)
  const pid = await bot.ask('child', program('stays'), [witness.path])
  await witness.ready(1)
  await bot.ask('register', { pid, runId: 'groupless' })
  // Read by another process: the bot has its own entries in memory.
  const [record] = supervise(path).list()
  assert.deepEqual([record?.runId, record?.pgid, record?.containment], ['groupless', null, 'process'])
})

describe('a process that a second bot registers', together, () => {
  /** Registers a process with a first bot. */
  async function before(t) {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const it = await bystander(t)
    await bot.ask('register', { pid: it.pid, runId: 'daemon', graceMs: 500 })
    return { ...it, bot, here: supervise(path), path }
  }

  test('belongs to the second bot if the first is dead', options, async (t) => {
    const { bot, here, path, pid, witness } = await before(t)
    await bot.kill()
    const record = here.registerProcess({ pid, runId: 'daemon', sessionId: 'second' })
    assert.deepEqual([record.botPid, record.ownerInstanceId], [process.pid, here.instanceId])
    const owners = () => here.list().map(({ botPid, sessionId }) => [botPid, sessionId])
    assert.deepEqual(owners(), [[process.pid, 'second']])
    const { killed } = await here.reapOrphans()
    assert.deepEqual(killed, [])
    assertAlive(witness)
    await until(() => entriesOf(path)[0]?.botPid === process.pid, 'the file names this bot')
    assert.deepEqual(owners(), [[process.pid, 'second']])
    await here.cancel({ sessionId: 'second' })
    assertGone(witness)
    await noEntry(path)
  })

  test('is refused if the first bot lives', options, async (t) => {
    const { bot, here, pid, witness } = await before(t)
    assert.throws(() => here.registerProcess({ pid }), { code: 'ERR_OWNED_ALREADY_REGISTERED' })
    assert.deepEqual(
      here.list().map(({ botPid }) => botPid),
      [bot.pid],
    )
    assertAlive(witness)
  })
})

describe('the entry is removed', together, () => {
  test('when the process ends by itself', options, async (t) => {
    const path = freshRegistry()
    const here = supervise(path)
    const it = await child(t, { name: 'stays', processes: 1, stdio: ['pipe', 'ignore', 'ignore'] })
    here.registerProcess({ pid: it.pid, runId: 'short' })
    await fileHas(path, 1)
    it.child.stdin.end()
    await once(it.child, 'exit')
    await until(() => here.list().length === 0, 'the list is empty')
    await noEntry(path)
    // The run id can be used again.
    const again = await child(t)
    here.registerProcess({ pid: again.pid, runId: 'short' })
    await here.cancel('short', { graceMs: 0 })
  })

  test('only after the last process of the group has ended', posixOnly(NO_SESSIONS, options), async (t) => {
    const path = freshRegistry()
    const here = supervise(path)
    const it = await child(t)
    here.registerProcess({ pid: it.pid, graceMs: 100 })
    await until(() => here.list()[0].members?.length === 1, 'the other member is recorded')
    const exit = once(it.child, 'exit')
    it.child.kill('SIGKILL')
    await exit
    assertAlive(it.witness)
    assert.equal(here.list().length, 1)
    // The run is found by its group, which the recorded member proves.
    const { outcome } = await here.cancel({ pid: it.pid })
    assertGone(it.witness)
    assert.equal(outcome, 'cancelled')
    await noEntry(path)
  })

  test('by unregisterProcess, and the process lives on', options, async (t) => {
    const path = freshRegistry()
    const here = supervise(path)
    const it = await child(t)
    const targets = [({ runId }) => runId, ({ pid }) => ({ pid }), () => it.child, () => ({ sessionId: 's' })]
    for (const target of targets) {
      const record = here.registerProcess({ pid: it.pid, sessionId: 's' })
      assert.equal(here.unregisterProcess(target(record)), true)
      assert.deepEqual(here.list(), [])
      assert.equal(here.unregisterProcess(target(record)), false)
    }
    assert.equal((await here.cancel({ pid: it.pid })).outcome, 'not-found')
    assertAlive(it.witness)
    await noEntry(path)
  })
})

describe('unregisterProcess', together, () => {
  test('refuses a run of spawnOwned, also beside a registered process', options, async (t) => {
    const here = supervise(freshRegistry())
    const witness = openWitness(t)
    const run = here.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore', sessionId: 's' })
    const it = await child(t)
    here.registerProcess({ pid: it.pid, sessionId: 's' })
    for (const target of [run, run.runId, { pid: run.pid }, { sessionId: 's' }]) {
      assert.throws(() => here.unregisterProcess(target), { code: 'ERR_OWNED_STILL_OWNED' })
    }
    assert.equal(here.list().length, 2)
    await here.cancel({ sessionId: 's' }, { graceMs: 0 })
  })

  test('removes no entry of another bot', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const it = await bystander(t)
    await bot.ask('register', { pid: it.pid })
    const here = supervise(path)
    assert.equal(here.unregisterProcess({ pid: it.pid }), false)
    assert.equal(here.list().length, 1)
    assertAlive(it.witness)
  })

  test('refuses an empty filter', options, () => {
    const here = supervise(freshRegistry())
    assert.throws(() => here.unregisterProcess({}), { code: 'ERR_OWNED_EMPTY_FILTER' })
    assert.throws(() => here.unregisterProcess(), { code: 'ERR_INVALID_ARG_TYPE' })
  })
})

describe('registerProcess refuses, and leaves no entry for,', together, () => {
  const assertRefused = (here, entry, expected) => {
    assert.throws(() => here.registerProcess(entry), expected)
    assert.deepEqual(here.list(), [])
  }

  test('a process that does not exist', options, async () => {
    const here = supervise(freshRegistry())
    const ended = spawn('true')
    await once(ended, 'exit')
    assertRefused(here, { pid: ended.pid }, { code: 'ERR_OWNED_NO_SUCH_PROCESS' })
  })

  test('a zombie', posixOnly(NO_ZOMBIES, options), async (t) => {
    const here = supervise(freshRegistry())
    const pid = await neverWaitedFor(t, 'sleep', '60')
    process.kill(pid, 'SIGKILL')
    await until(() => statOf(pid).state === 'Z', 'the process is a zombie')
    assertRefused(here, { pid }, { code: 'ERR_OWNED_NO_SUCH_PROCESS' })
  })

  for (const [what, pid] of [
    ['PID 1', isWindows ? 4 : 1],
    ['an ancestor', process.ppid],
  ]) {
    test(what, options, () => {
      assertRefused(supervise(freshRegistry()), { pid }, { code: 'ERR_OWNED_PROTECTED_PROCESS' })
    })
  }

  test('a process that is already registered', options, async (t) => {
    const here = supervise(freshRegistry())
    const { pid } = await child(t)
    here.registerProcess({ pid, runId: 'first' })
    assert.throws(() => here.registerProcess({ pid }), {
      code: 'ERR_OWNED_ALREADY_REGISTERED',
      message: /first/,
    })
    assert.equal(here.list().length, 1)
    await here.cancel({ pid }, { graceMs: 0 })
  })

  test('a run of spawnOwned', options, async (t) => {
    const here = supervise(freshRegistry())
    const witness = openWitness(t)
    const run = here.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
    await witness.ready(1)
    assert.throws(() => here.registerProcess({ pid: run.pid }), { code: 'ERR_OWNED_ALREADY_REGISTERED' })
    await run.cancel()
  })

  test('the run id of a run of spawnOwned, also if it waits for its scope', options, async (t) => {
    const here = supervise(freshRegistry())
    const { pid, witness } = await child(t)
    const first = here.spawnOwned('cat', { scopeKey: 'one-at-a-time' })
    const second = here.spawnOwned('cat', { scopeKey: 'one-at-a-time', replaceExistingScope: true })
    t.after(() => Promise.all([first, second].map((run) => run.cancel({ graceMs: 0 }))))
    assert.equal(second.pid, undefined)
    for (const { runId } of [first, second])
      assert.throws(() => here.registerProcess({ pid, runId }), { code: 'ERR_OWNED_DUPLICATE_RUN' })
    assertAlive(witness)
  })

  test('a run id that is in use', options, async (t) => {
    const here = supervise(freshRegistry())
    const [one, two] = [await child(t), await child(t)]
    here.registerProcess({ pid: one.pid, runId: 'taken' })
    const again = { pid: two.pid, runId: 'taken' }
    assert.throws(() => here.registerProcess(again), { code: 'ERR_OWNED_DUPLICATE_RUN' })
    assert.equal(here.list().length, 1)
    await here.cancel('taken', { graceMs: 0 })
    assertAlive(two.witness)
  })

  const type = 'ERR_INVALID_ARG_TYPE'
  const invalidEntries = [
    [undefined, type],
    [null, type],
    [7, type],
    [[], type],
    [{}, type],
    [{ pid: '7' }, type],
    [{ pid: 0 }, 'ERR_OUT_OF_RANGE'],
    [{ pid: -7 }, 'ERR_OUT_OF_RANGE'],
    [{ pid: 1.5 }, 'ERR_OUT_OF_RANGE'],
    [{ pid: 2 ** 31 }, 'ERR_OUT_OF_RANGE'],
    [{ pid: Number.NaN }, 'ERR_OUT_OF_RANGE'],
    [{ runId: 7 }, type],
    [{ runId: 'a/b' }, 'ERR_INVALID_ARG_VALUE'],
    [{ runId: '' }, 'ERR_INVALID_ARG_VALUE'],
    [{ sessionId: 7 }, type],
    [{ commandPreview: 7 }, type],
    [{ labels: ['agent'] }, type],
    [{ labels: { agent: 7 } }, type],
    [{ graceMs: '5' }, type],
    [{ graceMs: -1 }, 'ERR_OUT_OF_RANGE'],
  ]
  test('invalid arguments', options, async (t) => {
    const here = supervise(freshRegistry())
    const { pid } = await bystander(t)
    for (const [entry, code] of invalidEntries) {
      const whole =
        entry && !Array.isArray(entry) && Object.keys(entry).length > 0 ? { pid, ...entry } : entry
      assert.throws(() => here.registerProcess(whole), { code }, JSON.stringify(entry))
    }
    assert.deepEqual(here.list(), [])
  })
})
