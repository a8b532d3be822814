// ensureService: one worker per name, for any number of callers at once, also if callers die.
import { readFileSync } from 'node:fs'
import { assertAlive, assertGone, bystander, inAScript, killed, startBot } from '../support/bots.mjs'
import { assert, describe, options, READY, test } from '../support/prelude.mjs'
import { fails, heardAt, service } from '../support/services.mjs'

const together = { timeout: 600_000, concurrency: 3 }

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
