// Concurrent calls of reapOrphans, in several bots and in one: each orphan is ended once and
// reported once.
import { assertAlive, assertGone, fileHas, freshRegistry, startBot, supervise } from '../support/bots.mjs'
import { assertReport, crashed, GRACE_MS, kept } from '../support/orphans.mjs'
import {
  assert,
  CLEANED_UP,
  describe,
  openWitness,
  options,
  program,
  test,
  together,
} from '../support/prelude.mjs'
import { isWindows, NO_DESCRIPTOR_LIMIT, posixOnly } from '../support/system.mjs'

describe('two bots that reap at the same time', together, () => {
  const ORPHANS = 20
  for (const [what, how] of [
    ['without keepers', 'killWithHelpers'],
    ['with keepers', 'kill'],
  ]) {
    test(`end each orphan once, and report it once: ${what}`, options, async (t) => {
      const path = freshRegistry()
      const bot = await startBot(t, path)
      const witness = openWitness(t)
      const command = [program('marks-every-sigterm'), [witness.path]]
      const pids = []
      for (let i = 0; i < ORPHANS; i++) {
        const { pid } = await bot.ask('spawn', ...command, { graceMs: GRACE_MS, onOwnerExit: 'keep' })
        pids.push(pid)
      }
      await witness.ready(ORPHANS)
      const reapers = [await startBot(t, path), await startBot(t, path)]
      await bot[how]()
      const reports = await Promise.all(reapers.map((reaper) => reaper.ask('reap')))
      assertGone(witness)
      const killed = reports.flatMap((report) => report.killed)
      assert.deepEqual(killed.toSorted(), pids.toSorted())
      for (const { alreadyDead, skipped, failed, adopted } of reports) {
        assert.deepEqual([skipped, failed, adopted], [[], [], []])
        assert.deepEqual(alreadyDead, [])
      }
      if (!isWindows) assert.equal(witness.count(CLEANED_UP), ORPHANS, 'each gets SIGTERM once')
      await fileHas(path, 0)
    })
  }
})

describe('one bot that reaps', together, () => {
  test('twice at the same time ends and reports each orphan once', options, async (t) => {
    const path = freshRegistry()
    const runs = []
    for (let i = 0; i < 3; i++) runs.push(await crashed(t, { path }))
    const next = supervise(path)
    const reports = await Promise.all([next.reapOrphans(), next.reapOrphans(), next.reapOrphans()])
    for (const { witness } of runs) assertGone(witness)
    const killed = reports.flatMap((report) => report.killed)
    assert.deepEqual(killed.toSorted(), runs.map(({ pid }) => pid).toSorted())
    assert.deepEqual(
      reports.flatMap((report) => [...report.failed, ...report.skipped, ...report.alreadyDead]),
      [],
    )
  })

  test('a run and adopts it at the same time does only one of the two', options, async (t) => {
    for (let round = 0; round < 3; round++) {
      const { next, pid, runId, witness } = await kept(t)
      const [adoption, report] = await Promise.all([
        next.adopt(runId).catch((error) => error),
        next.reapOrphans(),
      ])
      if (adoption instanceof Error) {
        assertGone(witness)
        assertReport(report, { killed: [pid] })
      } else if (adoption.state !== 'exited') {
        assertAlive(witness)
        assertReport(report, {})
        await adoption.cancel()
      }
    }
  })

  test(
    'without a free file descriptor loses no entry and reports no live run as dead',
    posixOnly(NO_DESCRIPTOR_LIMIT, options),
    async (t) => {
      const path = freshRegistry()
      const next = await startBot(t, path, { within: ['sh', '-c', 'ulimit -n 256; exec "$@"', 'sh'] })
      const { pid, witness } = await crashed(t, { path })
      for (let free = 0; free < 40; free++) {
        const report = await next.ask('withDescriptors', free, 'reap').catch(({ code }) => ({ code }))
        if (report.killed?.length) break
        assert.deepEqual(report.alreadyDead ?? [], [], `with ${free} descriptors: ${JSON.stringify(report)}`)
        assertAlive(witness)
      }
      const { killed } = await next.ask('reap')
      assertGone(witness)
      assert.ok(killed.length === 0 || killed[0] === pid)
      await fileHas(path, 0)
    },
  )
})
