// ensureService while a worker starts: other callers wait, a caller may abort, the start may fail.
import { abandoned, recordOf } from '../support/abandoned.mjs'
import { assertAlive, assertGone, freshRegistry, gone, startBot, until } from '../support/bots.mjs'
import { assert, describe, FOR_EVER, options, READY, test } from '../support/prelude.mjs'
import { fails, recordIn, service, slowService } from '../support/services.mjs'

const together = { timeout: 600_000, concurrency: 3 }

describe('while a service starts,', together, () => {
  test('other callers wait until it is ready', options, async (t) => {
    const it = await slowService(t)
    const first = it.here.ensureService(it.options)
    await until(() => it.witness.count(READY) === 1, 'the worker has been started')
    const bot = await startBot(t, it.path)
    const second = bot.ask('ensureService', it.options)
    it.go()
    assert.deepEqual([(await first).started, (await second).started], [true, false])
    assert.equal((await first).pid, (await second).pid)
  })

  test('SIGKILL of its starter does not stop it, and other callers get it', options, async (t) => {
    const it = await slowService(t)
    const bot = await startBot(t, it.path)
    bot.ask('ensureService', it.options)
    await until(() => it.witness.count(READY) === 1, 'the worker has been started')
    const { pid } = recordIn(it)
    await bot.kill()
    const next = it.here.ensureService(it.options)
    it.go()
    assert.deepEqual([(await next).pid, (await next).started], [pid, false])
    assert.equal(it.witness.count(READY), 1)
  })

  test('the next caller starts it if the starter died before the worker existed', options, async (t) => {
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

  test('a worker that is never ready is ended, and the caller gets an error', options, async (t) => {
    const it = await slowService(t, { readyTimeoutMs: 700, attempts: 2, backoffMs: 1 })
    const expected = fails(
      'ERR_OWNED_SERVICE_FAILED',
      /"worker"/,
      /in 2 attempts/,
      /within 700 ms/,
      /ECONNREFUSED/,
    )
    await assert.rejects(it.here.ensureService(it.options), expected)
    it.witness.release()
    assertGone(it.witness)
    assert.deepEqual(it.here.list(), [])
  })

  test('a worker that always crashes is started `attempts` times', options, async (t) => {
    const it = await service(t, { worker: { exitCode: 7 }, backoffMs: 1 })
    const expected = fails(
      'ERR_OWNED_SERVICE_FAILED',
      /in 3 attempts/,
      /exited with code 7/,
      /options\.logPath/,
    )
    await assert.rejects(it.here.ensureService(it.options), expected)
    assert.equal(it.witness.count(READY), 3)
    it.witness.release()
    assertGone(it.witness)
    assert.deepEqual(it.here.list(), [])
  })

  test('a worker that always crashes is started fewer than ten times for ten callers', options, async (t) => {
    const it = await service(t, { worker: { exitCode: 7 }, backoffMs: 400 })
    const all = Array.from({ length: 10 }, () => it.here.ensureService(it.options))
    const codes = (await Promise.allSettled(all)).map(({ reason }) => reason?.code)
    assert.deepEqual(codes, Array(10).fill('ERR_OWNED_SERVICE_FAILED'))
    assert.ok(it.witness.count(READY) < 10, `${it.witness.count(READY)} were started`)
  })

  test('a command that does not exist is reported at once', options, async (t) => {
    const it = await service(t, { command: 'no-such-command', backoffMs: FOR_EVER })
    await assert.rejects(it.here.ensureService(it.options), fails('ENOENT', /no-such-command/))
    assert.deepEqual(it.here.list(), [])
  })

  test(
    'a log path that cannot be opened is reported at once, and no worker is started',
    options,
    async (t) => {
      const it = await service(t, { logPath: '/no/such/folder/log', backoffMs: FOR_EVER })
      await assert.rejects(it.here.ensureService(it.options), fails('ENOENT', /folder/))
      assert.equal(it.witness.count(READY), 0)
    },
  )

  test('it is not started again if another process stops it', options, async (t) => {
    const it = await slowService(t, { backoffMs: FOR_EVER })
    const starting = it.here.ensureService(it.options)
    starting.catch(() => {})
    await until(() => it.witness.count(READY) === 1, 'the worker has been started')
    const bot = await startBot(t, it.path)
    await bot.ask('stopService', 'worker')
    await assert.rejects(starting, fails('ERR_OWNED_SERVICE_STOPPED'))
    it.witness.release()
    assertGone(it.witness)
  })
})

describe('if a caller aborts', together, () => {
  const isAbort = { name: 'AbortError', code: 'ABORT_ERR' }

  test('before the start, no worker is started', options, async (t) => {
    const it = await service(t)
    await assert.rejects(it.here.ensureService({ ...it.options, signal: AbortSignal.abort() }), isAbort)
    assert.equal(it.witness.count(READY), 0)
    assert.deepEqual(it.here.list(), [])
  })

  test('while it starts the worker, no process is left', options, async (t) => {
    const it = await slowService(t)
    const abort = new AbortController()
    const starting = it.here.ensureService({ ...it.options, signal: abort.signal })
    starting.catch(() => {})
    await it.witness.ready(1)
    abort.abort()
    await assert.rejects(starting, isAbort)
    assertGone(it.witness)
  })

  test('while another caller starts the worker, the worker lives on', options, async (t) => {
    const it = await slowService(t)
    const first = it.here.ensureService(it.options)
    await until(() => it.witness.count(READY) === 1, 'the worker has been started')
    const signal = AbortSignal.timeout(100)
    await assert.rejects(it.here.ensureService({ ...it.options, signal }), isAbort)
    it.go()
    assert.equal((await first).started, true)
    assert.equal(it.witness.count(READY), 1)
  })

  test('after the worker is ready, the worker lives on', options, async (t) => {
    const it = await service(t)
    const abort = new AbortController()
    await it.here.ensureService({ ...it.options, signal: abort.signal })
    abort.abort()
    await it.witness.ready(1)
    assertAlive(it.witness)
  })
})
