// ensureService: one worker of a name, whoever asks, however many ask at once, and whatever becomes of them.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import { captureStartToken } from 'spawn-owned'
import { abandoned, recordOf } from './support/abandoned.mjs'
import {
  altered,
  assertAlive,
  assertGone,
  bystander,
  entriesOf,
  fileHas,
  freshRegistry,
  gone,
  inAScript,
  keeperOf,
  past,
  startBot,
  supervise,
  until,
} from './support/bots.mjs'
import { heardAt, onceMore, service, slowService, squat } from './support/services.mjs'
import { isWindows, NO_KEEPER, NO_NAMESPACES, NO_SHELL, posixOnly } from './support/system.mjs'
import { READY } from './support/witness.mjs'

const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 3 }
const FOR_EVER = 1e8
const NOT_TOLD = 'only Linux tells who has a port'

const recordIn = ({ here, options: { name } }) => here.list({ scopeKey: `service:${name}` })[0]
const fails =
  (code, ...parts) =>
  (error) => {
    assert.equal(error.code, code, error.stack)
    for (const part of parts) assert.match(error.message, part)
    return true
  }

describe('there is one', together, () => {
  test('it is started, found again, and stopped', options, async (t) => {
    const it = await service(t)
    const first = await it.here.ensureService(it.options)
    assert.equal(await heardAt(it.port), String(first.pid))
    assert.deepEqual([first.name, first.started, first.record.state], ['worker', true, 'running'])
    assert.deepEqual([first.record.service, first.record.onOwnerExit], ['worker', 'keep'])
    const second = await it.here.ensureService(it.options)
    assert.deepEqual([second.pid, second.runId, second.started], [first.pid, first.runId, false])
    assert.equal(it.witness.count(READY), 1)
    await it.witness.ready(1)
    const exit = await second.stop()
    assertGone(it.witness)
    assert.deepEqual([exit.runId, exit.reason, exit.survivors], [first.runId, 'manual-cancel', []])
    assert.equal((await first.stop()).runId, first.runId, 'a second time changes nothing')
  })

  test('ten calls at once in one process', options, async (t) => {
    const it = await service(t)
    const all = await Promise.all(Array.from({ length: 10 }, () => it.here.ensureService(it.options)))
    assert.equal(new Set(all.map(({ pid }) => pid)).size, 1)
    assert.equal(all.filter(({ started }) => started).length, 1)
    assert.equal(it.witness.count(READY), 1)
  })

  test('ten processes at once', options, async (t) => {
    const it = await service(t)
    const ask = () => inAScript(it.path, 'ensure', it.options)
    const all = (await Promise.all(Array.from({ length: 10 }, ask))).flat()
    assert.equal(new Set(all.map(({ pid }) => pid)).size, 1)
    assert.equal(all.filter(({ started }) => started).length, 1)
    assert.equal(it.witness.count(READY), 1, 'and no other was ever started')
    assert.equal(await heardAt(it.port), String(all[0].pid))
  })

  test('each name has its own', options, async (t) => {
    const one = await service(t)
    const other = await service(t, { path: one.path, name: 'other' })
    const [first, second] = await Promise.all([
      one.here.ensureService(one.options),
      one.here.ensureService(other.options),
    ])
    assert.deepEqual([first.started, second.started], [true, true])
    await one.witness.ready(1)
    await other.witness.ready(1)
    assert.equal((await one.here.stopService('other')).outcome, 'cancelled')
    assertGone(other.witness)
    assertAlive(one.witness)
  })
})

describe('it belongs to nobody', together, () => {
  for (const thing of ['ensure', 'ensure and exit']) {
    test(`it does not hold its starter, and survives it: ${thing}`, options, async (t) => {
      const it = await service(t)
      // Resolves when the script has ended.
      const [{ pid, started }] = await inAScript(it.path, thing, it.options)
      assert.equal(started, true)
      await it.witness.ready(1)
      assertAlive(it.witness)
      assert.equal(await heardAt(it.port), String(pid))
    })
  }

  test('it survives SIGKILL of its starter, and the next reaper', options, async (t) => {
    const it = await service(t)
    const bot = await startBot(t, it.path)
    const { pid, runId } = await bot.ask('ensureService', it.options)
    await it.witness.ready(1)
    await bot.kill()
    for (const policy of ['terminate', 'adopt']) {
      const { decisions, ...lists } = await it.here.reapOrphans(process.pid, { policy })
      const [{ decision, facts }] = decisions
      assert.deepEqual([decision, facts.reason, facts.service], ['leave', 'service', 'true'])
      assert.deepEqual(lists, { killed: [], alreadyDead: [], skipped: [], failed: [], adopted: [] })
    }
    assertAlive(it.witness)
    const again = await it.here.ensureService(it.options)
    assert.deepEqual([again.pid, again.runId, again.started], [pid, runId, false])
  })

  test('a shutdown of its starter leaves it alone', options, async (t) => {
    const it = await service(t)
    await it.here.ensureService(it.options)
    await it.witness.ready(1)
    assert.deepEqual((await it.here.shutdown({ graceMs: 0 })).exits, [])
    assertAlive(it.witness)
  })

  test('it is stopped by its name, from another process', options, async (t) => {
    const it = await service(t, { worker: { child: true } })
    await it.here.ensureService(it.options)
    await it.witness.ready(2)
    const [{ outcome, exits }] = await inAScript(it.path, 'stop', 'worker')
    assertGone(it.witness)
    assert.deepEqual([outcome, exits[0].survivors], ['cancelled', []])
    const [second] = await inAScript(it.path, 'stop', 'worker')
    assert.deepEqual(second, { outcome: 'not-found', exits: [] })
  })

  test('what is cancelled by a label goes, too', options, async (t) => {
    const it = await service(t, { labels: { company: 'acme' } })
    await it.here.ensureService(it.options)
    await it.witness.ready(1)
    assert.equal((await it.here.cancel({ labels: { company: 'acme' } })).outcome, 'cancelled')
    assertGone(it.witness)
  })
})

describe('while it starts', together, () => {
  test('the others wait until it is ready', options, async (t) => {
    const it = await slowService(t)
    const first = it.here.ensureService(it.options)
    await until(() => it.witness.count(READY) === 1, 'it has been started')
    const bot = await startBot(t, it.path)
    const second = bot.ask('ensureService', it.options)
    it.go()
    assert.deepEqual([(await first).started, (await second).started], [true, false])
    assert.equal((await first).pid, (await second).pid)
  })

  test('its starter is killed: it comes up all the same, for the others', options, async (t) => {
    const it = await slowService(t)
    const bot = await startBot(t, it.path)
    bot.ask('ensureService', it.options)
    await until(() => it.witness.count(READY) === 1, 'it has been started')
    const { pid } = recordIn(it)
    await bot.kill()
    const next = it.here.ensureService(it.options)
    it.go()
    assert.deepEqual([(await next).pid, (await next).started], [pid, false])
    assert.equal(it.witness.count(READY), 1)
  })

  test('its starter had died before there was anything: the next one starts it', options, async (t) => {
    const dead = await abandoned(t)
    process.kill(dead.pid, 'SIGKILL')
    await dead.witness.gone(20_000)
    await gone(dead.pid)
    const entry = await recordOf(dead, { state: 'starting', service: 'worker', scopeKey: 'service:worker' })
    const it = await service(t, { path: freshRegistry([entry]) })
    const { started, runId } = await it.here.ensureService(it.options)
    assert.equal(started, true)
    assert.deepEqual(
      it.here.list().map((record) => record.runId),
      [runId],
    )
  })

  test('it is never ready: ended, and the caller told', options, async (t) => {
    const it = await slowService(t, { readyTimeoutMs: 700, attempts: 2, backoffMs: 1 })
    const told = fails(
      'ERR_OWNED_SERVICE_FAILED',
      /"worker"/,
      /in 2 attempts/,
      /within 700 ms/,
      /ECONNREFUSED/,
    )
    await assert.rejects(it.here.ensureService(it.options), told)
    it.witness.release()
    assertGone(it.witness)
    assert.deepEqual(it.here.list(), [])
  })

  test('it crashes every time: as often as was asked for, and no more', options, async (t) => {
    const it = await service(t, { worker: { exitCode: 7 }, backoffMs: 1 })
    const told = fails('ERR_OWNED_SERVICE_FAILED', /in 3 attempts/, /exited with code 7/, /options\.logPath/)
    await assert.rejects(it.here.ensureService(it.options), told)
    assert.equal(it.witness.count(READY), 3)
    it.witness.release()
    assertGone(it.witness)
    assert.deepEqual(it.here.list(), [])
  })

  test('it crashes every time, and ten ask: not thirty times', options, async (t) => {
    const it = await service(t, { worker: { exitCode: 7 }, backoffMs: 400 })
    const all = Array.from({ length: 10 }, () => it.here.ensureService(it.options))
    const codes = (await Promise.allSettled(all)).map(({ reason }) => reason?.code)
    assert.deepEqual(codes, Array(10).fill('ERR_OWNED_SERVICE_FAILED'))
    assert.ok(it.witness.count(READY) < 10, `${it.witness.count(READY)} were started`)
  })

  test('there is no such command: told at once', options, async (t) => {
    const it = await service(t, { command: 'no-such-command', backoffMs: FOR_EVER })
    await assert.rejects(it.here.ensureService(it.options), fails('ENOENT', /no-such-command/))
    assert.deepEqual(it.here.list(), [])
  })

  test('nowhere to write its log: told at once, and nothing started', options, async (t) => {
    const it = await service(t, { logPath: '/no/such/folder/log', backoffMs: FOR_EVER })
    await assert.rejects(it.here.ensureService(it.options), fails('ENOENT', /folder/))
    assert.equal(it.witness.count(READY), 0)
  })

  test('it is stopped by somebody else: not started again', options, async (t) => {
    const it = await slowService(t, { backoffMs: FOR_EVER })
    const starting = it.here.ensureService(it.options)
    starting.catch(() => {})
    await until(() => it.witness.count(READY) === 1, 'it has been started')
    const bot = await startBot(t, it.path)
    await bot.ask('stopService', 'worker')
    await assert.rejects(starting, fails('ERR_OWNED_SERVICE_STOPPED'))
    it.witness.release()
    assertGone(it.witness)
  })
})

describe('somebody loses patience', together, () => {
  const isAbort = { name: 'AbortError', code: 'ABORT_ERR' }

  test('before it was started', options, async (t) => {
    const it = await service(t)
    await assert.rejects(it.here.ensureService({ ...it.options, signal: AbortSignal.abort() }), isAbort)
    assert.equal(it.witness.count(READY), 0)
    assert.deepEqual(it.here.list(), [])
  })

  test('while it starts: nothing of it is left', options, async (t) => {
    const it = await slowService(t)
    const abort = new AbortController()
    const starting = it.here.ensureService({ ...it.options, signal: abort.signal })
    starting.catch(() => {})
    await it.witness.ready(1)
    abort.abort()
    await assert.rejects(starting, isAbort)
    assertGone(it.witness)
  })

  test('while somebody else starts it: that is left alone', options, async (t) => {
    const it = await slowService(t)
    const first = it.here.ensureService(it.options)
    await until(() => it.witness.count(READY) === 1, 'it has been started')
    const signal = AbortSignal.timeout(100)
    await assert.rejects(it.here.ensureService({ ...it.options, signal }), isAbort)
    it.go()
    assert.equal((await first).started, true)
    assert.equal(it.witness.count(READY), 1)
  })

  test('it is up by then: nobody minds', options, async (t) => {
    const it = await service(t)
    const abort = new AbortController()
    await it.here.ensureService({ ...it.options, signal: abort.signal })
    abort.abort()
    await it.witness.ready(1)
    assertAlive(it.witness)
  })
})

describe('it is gone', together, () => {
  for (const starter of ['its starter lives', 'its starter is gone']) {
    test(
      `kill -9 of the worker, ${starter}: started anew, and nothing of the old one left`,
      options,
      async (t) => {
        const it = await service(t, { worker: { child: true } })
        const bot = await startBot(t, it.path)
        const { pid } = await bot.ask('ensureService', it.options)
        await it.witness.ready(2)
        if (starter === 'its starter is gone') await bot.kill()
        process.kill(pid, 'SIGKILL')
        const next = onceMore(t, it)
        const again = await it.here.ensureService(next.options)
        assertGone(it.witness)
        assert.deepEqual([again.started, again.pid === pid], [true, false])
        assert.equal(await heardAt(it.port), String(again.pid))
        await next.witness.ready(2)
        assertAlive(next.witness)
        await fileHas(it.path, 1)
        assert.equal(entriesOf(it.path)[0].runId, again.runId, 'and no entry either')
      },
    )

    test(`kill -9 of its keeper, ${starter}`, posixOnly(NO_KEEPER, options), async (t) => {
      const it = await service(t, { worker: { child: true } })
      const bot = await startBot(t, it.path)
      const { pid } = await bot.ask('ensureService', it.options)
      await it.witness.ready(2)
      const keeper = keeperOf(recordIn(it))
      if (starter === 'its starter is gone') await bot.kill()
      process.kill(keeper, 'SIGKILL')
      const next = onceMore(t, it)
      const again = await it.here.ensureService(next.options)
      assertGone(it.witness)
      assert.deepEqual([again.started, again.pid === pid], [true, false])
    })
  }

  test('its starter was stopped, and takes no note of it', posixOnly(NO_KEEPER, options), async (t) => {
    const it = await service(t)
    const bot = await startBot(t, it.path)
    const { pid } = await bot.ask('ensureService', it.options)
    await it.witness.ready(1)
    bot.signal('SIGSTOP')
    process.kill(pid, 'SIGKILL')
    const next = onceMore(t, it)
    const again = await it.here.ensureService(next.options)
    assertGone(it.witness)
    assert.equal(again.started, true)
    // What it writes down when it wakes is about the one that is gone.
    bot.signal('SIGCONT')
    assert.deepEqual(await bot.ask('ensureService', next.options), {
      pid: again.pid,
      runId: again.runId,
      started: false,
    })
  })

  test('starter, helpers and worker at once', options, async (t) => {
    const it = await service(t, { worker: { child: true } })
    const bot = await startBot(t, it.path)
    const { pid } = await bot.ask('ensureService', it.options)
    await it.witness.ready(2)
    await bot.killWithHelpers()
    process.kill(pid, 'SIGKILL')
    const again = await it.here.ensureService(onceMore(t, it).options)
    assertGone(it.witness)
    assert.equal(again.started, true)
  })

  test('it has lost all who held it together: replaced', posixOnly(NO_KEEPER, options), async (t) => {
    const it = await service(t, { worker: { child: true } })
    const bot = await startBot(t, it.path)
    await bot.ask('ensureService', it.options)
    await it.witness.ready(2)
    await bot.killWithHelpers()
    assertAlive(it.witness)
    const again = await it.here.ensureService(onceMore(t, it).options)
    assertGone(it.witness)
    assert.equal(again.started, true)
  })

  test('it is alive, and does not answer any more: replaced', options, async (t) => {
    const it = await service(t)
    const [fixture, told] = it.options.args
    const args = [fixture, JSON.stringify({ ...JSON.parse(told), until: it.file('deaf') })]
    const { pid, record } = await it.here.ensureService({ ...it.options, args })
    const { startedAt } = record
    await it.witness.ready(1)
    it.make('deaf')
    await until(
      () =>
        heardAt(it.port).then(
          () => false,
          () => true,
        ),
      'it is deaf',
    )
    // It was up, so that it is not ready now was no attempt to start it.
    const readyTimeoutMs = 4000
    await until(() => Date.now() > startedAt + readyTimeoutMs, 'it has been there for long')
    const next = onceMore(t, it)
    const bot = await startBot(t, it.path)
    const again = await bot.ask('ensureService', { ...next.options, readyTimeoutMs, attempts: 1 })
    assertGone(it.witness)
    assert.deepEqual([again.started, again.pid === pid], [true, false])
  })

  test('its PID was recycled: whoever has it is left alone', options, async (t) => {
    const stranger = await bystander(t)
    const token = past(captureStartToken(stranger.pid))
    const left = { pid: stranger.pid, startedAt: Date.now(), startToken: token, detached: true }
    // The number of its keeper as well. There is nobody at that address.
    const keeper = { startToken: captureStartToken(stranger.pid), address: '0000000' }
    const kept = isWindows ? {} : { containment: 'keeper', keeper }
    const entry = await recordOf(left, { service: 'worker', scopeKey: 'service:worker', ...kept })
    const it = await service(t, { path: freshRegistry([entry]) })
    const always = { ready: () => true, port: undefined }
    const { started, pid } = await it.here.ensureService({ ...it.options, ...always })
    assert.equal(started, true)
    assert.notEqual(pid, stranger.pid)
    assertAlive(stranger.witness)
  })

  test('it is in another namespace: hands off', posixOnly(NO_NAMESPACES, options), async (t) => {
    const stranger = await bystander(t)
    const startToken = altered(captureStartToken(stranger.pid), { ns: 1 })
    const left = { pid: stranger.pid, startedAt: Date.now(), startToken, detached: true }
    const entry = await recordOf(left, { service: 'worker', scopeKey: 'service:worker' })
    const it = await service(t, { path: freshRegistry([entry]) })
    await assert.rejects(it.here.ensureService(it.options), fails('ERR_OWNED_SERVICE_UNKNOWN', /registry/))
    assert.equal(it.witness.count(READY), 0)
    assertAlive(stranger.witness)
  })
})

describe('somebody else has the port', together, () => {
  const taken = (port) =>
    fails(
      'ERR_OWNED_PORT_TAKEN',
      new RegExp(`Port ${port} `),
      isWindows ? /not service "worker"/ : new RegExp(`process ${process.pid} .*not service "worker"`),
    )

  test('before it is started: nothing is', options, async (t) => {
    const it = await service(t, { backoffMs: FOR_EVER })
    await squat(t, it.port)
    await assert.rejects(it.here.ensureService(it.options), taken(it.port))
    assert.equal(it.witness.count(READY), 0)
    assert.deepEqual(it.here.list(), [])
    assert.equal(await heardAt(it.port), 'squatter')
  })

  test('after ours has died', options, async (t) => {
    const it = await service(t, { backoffMs: FOR_EVER })
    const { pid } = await it.here.ensureService(it.options)
    await it.witness.ready(1)
    process.kill(pid, 'SIGKILL')
    await it.witness.gone(20_000)
    await squat(t, it.port)
    await assert.rejects(it.here.ensureService(onceMore(t, it).options), taken(it.port))
    assert.deepEqual(it.here.list(), [])
  })

  test('before ours got to listen', posixOnly(NOT_TOLD, options), async (t) => {
    const it = await slowService(t, { backoffMs: FOR_EVER })
    const starting = it.here.ensureService(it.options)
    starting.catch(() => {})
    await it.witness.ready(1)
    await squat(t, it.port)
    await assert.rejects(starting, taken(it.port))
    assertGone(it.witness)
  })

  test('ours, started by somebody else, is left alone', posixOnly(NOT_TOLD, options), async (t) => {
    const it = await slowService(t)
    await it.here.ensureService({ ...it.options, port: undefined, ready: () => true })
    await it.witness.ready(1)
    await squat(t, it.port)
    await assert.rejects(supervise(it.path).ensureService(it.options), taken(it.port))
    assertAlive(it.witness)
  })

  test('a child of the worker has it: that is ours', posixOnly(NO_SHELL, options), async (t) => {
    const it = await service(t)
    const { command, args } = it.options
    const wrapped = { command: 'sh', args: ['-c', '"$@"; exit 1', 'sh', command, ...args] }
    const { pid } = await it.here.ensureService({ ...it.options, ...wrapped })
    assert.notEqual(await heardAt(it.port), String(pid))
  })
})

describe('what it is told', together, () => {
  test('its output is kept if somebody wants it', options, async (t) => {
    const it = await service(t, { worker: { says: 'hello' } })
    const logPath = it.file('log')
    const { pid } = await it.here.ensureService({ ...it.options, logPath })
    assert.equal(readFileSync(logPath, 'utf8').trim(), 'hello')
    process.kill(pid, 'SIGKILL')
    await it.here.ensureService({ ...it.options, logPath })
    assert.equal(readFileSync(logPath, 'utf8').trim().split(/\s+/).join(), 'hello,hello', 'appended')
  })

  test('ready() decides, and may reject until then', options, async (t) => {
    const it = await service(t)
    const answers = [() => Promise.reject(new Error('not yet')), () => false, () => true]
    let asked = 0
    const ready = () => answers[asked++]()
    await it.here.ensureService({ ...it.options, ready })
    assert.equal(asked, 3)
    asked = 2
    assert.equal((await it.here.ensureService({ ...it.options, port: undefined, ready })).started, false)
  })

  test('ready() must say yes or no', options, async (t) => {
    const it = await service(t)
    const ready = () => 'yes'
    await assert.rejects(it.here.ensureService({ ...it.options, ready }), fails('ERR_INVALID_RETURN_VALUE'))
    it.witness.release()
    assertGone(it.witness)
  })

  test('a ready() that never answers is not waited for', options, async (t) => {
    const it = await service(t)
    const hung = { ready: () => new Promise(() => {}), readyTimeoutMs: 1500, attempts: 1 }
    await assert.rejects(it.here.ensureService({ ...it.options, ...hung }), fails('ERR_OWNED_SERVICE_FAILED'))
    it.witness.release()
    assertGone(it.witness)
  })

  test('mistakes are named, also if it is up', options, async (t) => {
    const it = await service(t)
    await it.here.ensureService(it.options)
    const cases = [
      [{ name: undefined }, 'ERR_INVALID_ARG_TYPE', /options\.name/],
      [{ name: 'a/b' }, 'ERR_INVALID_ARG_VALUE', /options\.name.*letters, digits/],
      [{ command: '' }, 'ERR_INVALID_ARG_VALUE', /options\.command.*empty/],
      [{ args: 'x' }, 'ERR_INVALID_ARG_TYPE', /options\.args/],
      [{ args: [1] }, 'ERR_INVALID_ARG_TYPE', /options\.args\[0\]/],
      [{ port: '80' }, 'ERR_INVALID_ARG_TYPE', /options\.port/],
      [{ port: 0 }, 'ERR_OUT_OF_RANGE', /options\.port/],
      [{ port: undefined }, 'ERR_INVALID_ARG_VALUE', /options\.port.*options\.ready must be given/],
      [{ ready: true }, 'ERR_INVALID_ARG_TYPE', /options\.ready/],
      [{ host: '' }, 'ERR_INVALID_ARG_VALUE', /options\.host/],
      [{ attempts: 0 }, 'ERR_OUT_OF_RANGE', /options\.attempts/],
      [{ attempts: 1.5 }, 'ERR_OUT_OF_RANGE', /options\.attempts/],
      [{ backoffMs: -1 }, 'ERR_OUT_OF_RANGE', /options\.backoffMs/],
      [{ readyTimeoutMs: 0 }, 'ERR_OUT_OF_RANGE', /options\.readyTimeoutMs/],
      [{ logPath: 1 }, 'ERR_INVALID_ARG_TYPE', /options\.logPath/],
      [{ signal: 1 }, 'ERR_INVALID_ARG_TYPE', /options\.signal/],
      [{ stdio: 'inherit' }, 'ERR_INVALID_ARG_VALUE', /options\.stdio.*no option of a service/],
      [{ onOwnerExit: 'kill' }, 'ERR_INVALID_ARG_VALUE', /options\.onOwnerExit.*no option of a service/],
      [{ cwd: 1 }, 'ERR_INVALID_ARG_TYPE', /options\.cwd/],
    ]
    for (const [mistake, code, text] of cases)
      await assert.rejects(it.here.ensureService({ ...it.options, ...mistake }), fails(code, text))
    await assert.rejects(it.here.ensureService(), fails('ERR_INVALID_ARG_TYPE', /options/))
    await assert.rejects(it.here.stopService(), fails('ERR_INVALID_ARG_TYPE', /name/))
    assert.equal(it.witness.count(READY), 1)
  })

  test('its scope is in use by something else: told, and nothing touched', options, async (t) => {
    const stranger = await bystander(t)
    const it = await service(t)
    it.here.registerProcess({ pid: stranger.pid, scopeKey: 'service:worker' })
    await assert.rejects(it.here.ensureService(it.options), fails('ERR_OWNED_SCOPE_BUSY', /service:worker/))
    assertAlive(stranger.witness)
    assert.equal(it.witness.count(READY), 0)
  })
})
