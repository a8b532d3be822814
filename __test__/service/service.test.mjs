// ensureService: one worker per name, for any number of callers at once, also if callers die.
import { readFileSync } from 'node:fs'
import { captureStartToken } from 'spawn-owned'
import { abandoned, recordOf } from '../support/abandoned.mjs'
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
  killed,
  past,
  startBot,
  stateOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { assert, describe, FOR_EVER, options, program, READY, test } from '../support/prelude.mjs'
import { heardAt, onceMore, service, slowService, squat } from '../support/services.mjs'
import { isWindows, linuxOnly, NO_KEEPER, NO_NAMESPACES, NO_SHELL, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }
const NO_PORT_OWNER = 'only Linux shows which process has a port'

const recordIn = ({ here, options: { name } }) => here.list({ scopeKey: `service:${name}` })[0]
const fails =
  (code, ...parts) =>
  (error) => {
    assert.equal(error.code, code, error.stack)
    for (const part of parts) assert.match(error.message, part)
    return true
  }

describe('ensureService', together, () => {
  test('starts a service, finds it again, and stops it', options, async (t) => {
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
    assert.equal((await first.stop()).runId, first.runId, 'a second stop changes nothing')
  })

  test('starts one worker for ten concurrent calls in one process', options, async (t) => {
    const it = await service(t)
    const all = await Promise.all(Array.from({ length: 10 }, () => it.here.ensureService(it.options)))
    assert.equal(new Set(all.map(({ pid }) => pid)).size, 1)
    assert.equal(all.filter(({ started }) => started).length, 1)
    assert.equal(it.witness.count(READY), 1)
  })

  test('starts one worker for ten concurrent processes', options, async (t) => {
    const it = await service(t)
    const ask = () => inAScript(it.path, 'ensure', it.options)
    const all = (await Promise.all(Array.from({ length: 10 }, ask))).flat()
    assert.equal(new Set(all.map(({ pid }) => pid)).size, 1)
    assert.equal(all.filter(({ started }) => started).length, 1)
    assert.equal(it.witness.count(READY), 1, 'no other worker was started')
    assert.equal(await heardAt(it.port), String(all[0].pid))
  })

  test('starts one worker for each name', options, async (t) => {
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

describe('a service has no owner:', together, () => {
  for (const thing of ['ensure', 'ensure and exit']) {
    test(`its starter can exit, and it lives on: ${thing}`, options, async (t) => {
      const it = await service(t)
      // Resolves when the script has ended.
      const [{ pid, started }] = await inAScript(it.path, thing, it.options)
      assert.equal(started, true)
      await it.witness.ready(1)
      assertAlive(it.witness)
      assert.equal(await heardAt(it.port), String(pid))
    })
  }

  test('it survives SIGKILL of its starter, and a later reapOrphans', options, async (t) => {
    const it = await service(t)
    const bot = await startBot(t, it.path)
    const { pid, runId } = await bot.ask('ensureService', it.options)
    await it.witness.ready(1)
    await bot.kill()
    for (const policy of ['terminate', 'adopt']) {
      const { decisions, ...lists } = await it.here.reapOrphans(process.pid, { policy })
      const [{ decision, facts }] = decisions
      assert.deepEqual([decision, facts.reason, facts.service], ['leave', 'service', 'true'])
      assert.deepEqual(lists, {
        killed: [],
        alreadyDead: [],
        skipped: [],
        failed: [],
        ended: [],
        adopted: [],
      })
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

  test('a cancel by label ends it, too', options, async (t) => {
    const it = await service(t, { labels: { company: 'acme' } })
    await it.here.ensureService(it.options)
    await it.witness.ready(1)
    assert.equal((await it.here.cancel({ labels: { company: 'acme' } })).outcome, 'cancelled')
    assertGone(it.witness)
  })
})

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

describe('ensureService starts a new worker after', together, () => {
  for (const starter of ['its starter is alive', 'its starter is dead']) {
    test(
      `SIGKILL of the worker while ${starter}, and no process of the old one is left`,
      options,
      async (t) => {
        const it = await service(t, { worker: { child: true } })
        const bot = await startBot(t, it.path)
        const { pid } = await bot.ask('ensureService', it.options)
        await it.witness.ready(2)
        if (starter === 'its starter is dead') await bot.kill()
        await killed(pid)
        const next = onceMore(t, it)
        const again = await it.here.ensureService(next.options)
        assertGone(it.witness)
        assert.deepEqual([again.started, again.pid === pid], [true, false])
        assert.equal(await heardAt(it.port), String(again.pid))
        await next.witness.ready(2)
        assertAlive(next.witness)
        await fileHas(it.path, 1)
        assert.equal(entriesOf(it.path)[0].runId, again.runId, 'no entry of the old worker is left')
      },
    )

    test(`SIGKILL of the keeper while ${starter}`, posixOnly(NO_KEEPER, options), async (t) => {
      const it = await service(t, { worker: { child: true } })
      const bot = await startBot(t, it.path)
      const { pid } = await bot.ask('ensureService', it.options)
      await it.witness.ready(2)
      const keeper = keeperOf(recordIn(it))
      if (starter === 'its starter is dead') await bot.kill()
      process.kill(keeper, 'SIGKILL')
      const next = onceMore(t, it)
      const again = await it.here.ensureService(next.options)
      assertGone(it.witness)
      assert.deepEqual([again.started, again.pid === pid], [true, false])
    })
  }

  test('SIGKILL of the worker while its starter is stopped', posixOnly(NO_KEEPER, options), async (t) => {
    const it = await service(t)
    const bot = await startBot(t, it.path)
    const { pid } = await bot.ask('ensureService', it.options)
    await it.witness.ready(1)
    bot.signal('SIGSTOP')
    await until(() => stateOf(bot.pid) === 'T', 'the bot has stopped')
    await killed(pid)
    const next = onceMore(t, it)
    const again = await it.here.ensureService(next.options)
    assertGone(it.witness)
    assert.equal(again.started, true)
    // The starter then records only the end of the old worker.
    bot.signal('SIGCONT')
    assert.deepEqual(await bot.ask('ensureService', next.options), {
      pid: again.pid,
      runId: again.runId,
      started: false,
    })
  })

  test('SIGKILL of starter, helpers and worker at once', options, async (t) => {
    const it = await service(t, { worker: { child: true } })
    const bot = await startBot(t, it.path)
    const { pid } = await bot.ask('ensureService', it.options)
    await it.witness.ready(2)
    await bot.killWithHelpers()
    await killed(pid)
    const again = await it.here.ensureService(onceMore(t, it).options)
    assertGone(it.witness)
    assert.equal(again.started, true)
  })

  test(
    'SIGKILL of starter and helpers, although the worker is alive',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const it = await service(t, { worker: { child: true } })
      const bot = await startBot(t, it.path)
      await bot.ask('ensureService', it.options)
      await it.witness.ready(2)
      await bot.killWithHelpers()
      assertAlive(it.witness)
      const again = await it.here.ensureService(onceMore(t, it).options)
      assertGone(it.witness)
      assert.equal(again.started, true)
    },
  )

  test('the worker has stopped answering, although it is alive', options, async (t) => {
    const it = await service(t)
    const [fixture, settings] = it.options.args
    const args = [fixture, JSON.stringify({ ...JSON.parse(settings), until: it.file('deaf') })]
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
      'it no longer answers',
    )
    // The worker was ready before, so this failure does not count as an attempt to start it.
    const readyTimeoutMs = 4000
    await until(() => Date.now() > startedAt + readyTimeoutMs, 'readyTimeoutMs has passed since its start')
    const next = onceMore(t, it)
    const bot = await startBot(t, it.path)
    const again = await bot.ask('ensureService', { ...next.options, readyTimeoutMs, attempts: 1 })
    assertGone(it.witness)
    assert.deepEqual([again.started, again.pid === pid], [true, false])
  })

  test('its PID was reused, and does not signal the process that has the PID now', options, async (t) => {
    const stranger = await bystander(t)
    const token = past(captureStartToken(stranger.pid))
    const left = { pid: stranger.pid, startedAt: Date.now(), startToken: token, detached: true }
    // The keeper's PID is reused, too. No process listens at that address.
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

  test(
    'its end only: it refuses to start one if the worker is in another PID namespace',
    posixOnly(NO_NAMESPACES, options),
    async (t) => {
      const stranger = await bystander(t)
      const startToken = altered(captureStartToken(stranger.pid), { ns: 1 })
      const left = { pid: stranger.pid, startedAt: Date.now(), startToken, detached: true }
      const entry = await recordOf(left, { service: 'worker', scopeKey: 'service:worker' })
      const it = await service(t, { path: freshRegistry([entry]) })
      await assert.rejects(it.here.ensureService(it.options), fails('ERR_OWNED_SERVICE_UNKNOWN', /registry/))
      assert.equal(it.witness.count(READY), 0)
      assertAlive(stranger.witness)
    },
  )
})

test(
  'a worker whose main thread has ended is found at its port',
  linuxOnly(NO_PORT_OWNER, options),
  async (t) => {
    const it = await service(t)
    const listens = { command: program('listens-in-a-thread'), args: [it.witness.path, String(it.port)] }
    const { pid, started } = await it.here.ensureService({ ...it.options, ...listens })
    assert.deepEqual([started, await heardAt(it.port)], [true, String(pid)])
    const again = await it.here.ensureService({ ...it.options, ...listens })
    assert.deepEqual([again.pid, again.started], [pid, false])
  },
)

describe('ensureService reports that another process has the port', together, () => {
  const taken = (port) =>
    fails(
      'ERR_OWNED_PORT_TAKEN',
      new RegExp(`Port ${port} `),
      isWindows
        ? /not belong to service "worker"/
        : new RegExp(`process ${process.pid} .*not belong to service "worker"`),
    )

  test('before the start, and starts no worker', options, async (t) => {
    const it = await service(t, { backoffMs: FOR_EVER })
    await squat(t, it.port)
    await assert.rejects(it.here.ensureService(it.options), taken(it.port))
    assert.equal(it.witness.count(READY), 0)
    assert.deepEqual(it.here.list(), [])
    assert.equal(await heardAt(it.port), 'squatter')
  })

  test('after the worker has died', options, async (t) => {
    const it = await service(t, { backoffMs: FOR_EVER })
    const { pid } = await it.here.ensureService(it.options)
    await it.witness.ready(1)
    process.kill(pid, 'SIGKILL')
    await it.witness.gone(20_000)
    await squat(t, it.port)
    await assert.rejects(it.here.ensureService(onceMore(t, it).options), taken(it.port))
    assert.deepEqual(it.here.list(), [])
  })

  test('before the worker listens, and ends the worker', posixOnly(NO_PORT_OWNER, options), async (t) => {
    const it = await slowService(t, { backoffMs: FOR_EVER })
    const starting = it.here.ensureService(it.options)
    starting.catch(() => {})
    await it.witness.ready(1)
    await squat(t, it.port)
    await assert.rejects(starting, taken(it.port))
    assertGone(it.witness)
  })

  test(
    'and does not end a worker that another caller has started',
    posixOnly(NO_PORT_OWNER, options),
    async (t) => {
      const it = await slowService(t)
      await it.here.ensureService({ ...it.options, port: undefined, ready: () => true })
      await it.witness.ready(1)
      await squat(t, it.port)
      await assert.rejects(supervise(it.path).ensureService(it.options), taken(it.port))
      assertAlive(it.witness)
    },
  )

  test('but not if a child of the worker has it', posixOnly(NO_SHELL, options), async (t) => {
    const it = await service(t)
    const { command, args } = it.options
    const wrapped = { command: 'sh', args: ['-c', '"$@"; exit 1', 'sh', command, ...args] }
    const { pid } = await it.here.ensureService({ ...it.options, ...wrapped })
    assert.notEqual(await heardAt(it.port), String(pid))
  })
})

describe('the options of ensureService:', together, () => {
  test('logPath receives the output of the worker', options, async (t) => {
    const it = await service(t, { worker: { says: 'hello' } })
    const logPath = it.file('log')
    const { pid } = await it.here.ensureService({ ...it.options, logPath })
    assert.equal(readFileSync(logPath, 'utf8').trim(), 'hello')
    await killed(pid)
    await it.here.ensureService({ ...it.options, logPath })
    assert.equal(readFileSync(logPath, 'utf8').trim().split(/\s+/).join(), 'hello,hello', 'appended')
  })

  test('ready() decides, and may reject until then', options, async (t) => {
    const it = await service(t)
    const answers = [() => Promise.reject(new Error('not yet')), () => false, () => true]
    let calls = 0
    const ready = () => answers[calls++]()
    await it.here.ensureService({ ...it.options, ready })
    assert.equal(calls, 3)
    calls = 2
    assert.equal((await it.here.ensureService({ ...it.options, port: undefined, ready })).started, false)
  })

  test('ready() must return a boolean', options, async (t) => {
    const it = await service(t)
    const ready = () => 'yes'
    await assert.rejects(it.here.ensureService({ ...it.options, ready }), fails('ERR_INVALID_RETURN_VALUE'))
    it.witness.release()
    assertGone(it.witness)
  })

  test('a ready() that never resolves ends with the timeout', options, async (t) => {
    const it = await service(t)
    const hung = { ready: () => new Promise(() => {}), readyTimeoutMs: 1500, attempts: 1 }
    await assert.rejects(it.here.ensureService({ ...it.options, ...hung }), fails('ERR_OWNED_SERVICE_FAILED'))
    it.witness.release()
    assertGone(it.witness)
  })

  test('invalid values are refused, also if the service is ready', options, async (t) => {
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
      [{ port: undefined }, 'ERR_INVALID_ARG_VALUE', /options\.port.*options\.ready is required/],
      [{ ready: true }, 'ERR_INVALID_ARG_TYPE', /options\.ready/],
      [{ host: '' }, 'ERR_INVALID_ARG_VALUE', /options\.host/],
      [{ attempts: 0 }, 'ERR_OUT_OF_RANGE', /options\.attempts/],
      [{ attempts: 1.5 }, 'ERR_OUT_OF_RANGE', /options\.attempts/],
      [{ backoffMs: -1 }, 'ERR_OUT_OF_RANGE', /options\.backoffMs/],
      [{ readyTimeoutMs: 0 }, 'ERR_OUT_OF_RANGE', /options\.readyTimeoutMs/],
      [{ logPath: 1 }, 'ERR_INVALID_ARG_TYPE', /options\.logPath/],
      [{ signal: 1 }, 'ERR_INVALID_ARG_TYPE', /options\.signal/],
      [{ stdio: 'inherit' }, 'ERR_INVALID_ARG_VALUE', /options\.stdio.*not an option of ensureService/],
      [
        { onOwnerExit: 'kill' },
        'ERR_INVALID_ARG_VALUE',
        /options\.onOwnerExit.*not an option of ensureService/,
      ],
      [{ cwd: 1 }, 'ERR_INVALID_ARG_TYPE', /options\.cwd/],
    ]
    for (const [mistake, code, text] of cases)
      await assert.rejects(it.here.ensureService({ ...it.options, ...mistake }), fails(code, text))
    await assert.rejects(it.here.ensureService(), fails('ERR_INVALID_ARG_TYPE', /options/))
    await assert.rejects(it.here.stopService(), fails('ERR_INVALID_ARG_TYPE', /name/))
    assert.equal(it.witness.count(READY), 1)
  })

  test('a scope that another run uses causes an error, and no process is signalled', options, async (t) => {
    const stranger = await bystander(t)
    const it = await service(t)
    it.here.registerProcess({ pid: stranger.pid, scopeKey: 'service:worker' })
    await assert.rejects(it.here.ensureService(it.options), fails('ERR_OWNED_SCOPE_BUSY', /service:worker/))
    assertAlive(stranger.witness)
    assert.equal(it.witness.count(READY), 0)
  })
})
