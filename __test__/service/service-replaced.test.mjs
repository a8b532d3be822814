// ensureService starts a new worker when the old one is gone or does not answer.
import { captureStartToken } from 'spawn-owned'
import { recordOf } from '../support/abandoned.mjs'
import {
  altered,
  assertAlive,
  assertGone,
  bystander,
  entriesOf,
  fileHas,
  freshRegistry,
  keeperOf,
  killed,
  past,
  startBot,
  stateOf,
  until,
} from '../support/bots.mjs'
import { assert, describe, options, READY, test } from '../support/prelude.mjs'
import { fails, heardAt, onceMore, recordIn, service } from '../support/services.mjs'
import { isWindows, NO_KEEPER, NO_NAMESPACES, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

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
