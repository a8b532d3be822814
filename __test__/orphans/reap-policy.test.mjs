// The arguments of reapOrphans: dry run, policy, and invalid values.
import { readdirSync } from 'node:fs'
import { dirname } from 'node:path'
import {
  altered,
  assertAlive,
  assertGone,
  entriesOf,
  filesOf,
  freshRegistry,
  gone,
  past,
  supervise,
  until,
} from '../support/bots.mjs'
import { assertReport, crashed, crashedAs, kept, mistaken, owned } from '../support/orphans.mjs'
import { assert, describe, options, test, together } from '../support/prelude.mjs'
import { NO_KEEPER, posixOnly } from '../support/system.mjs'

describe('a dry run', together, () => {
  test(
    'reports what would happen, changes no file and signals no process',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const path = freshRegistry()
      const orphan = await crashed(t, { path })
      const keptOne = await kept(t, { path })
      const dead = await crashed(t, { path })
      process.kill(dead.pid, 'SIGKILL')
      await gone(dead.pid)
      const alive = await owned(t, { path })
      // Wait until no bot writes any more.
      await until(
        () => entriesOf(path).length === 4 && readdirSync(dirname(path)).length === 2,
        'a checkpoint',
      )
      const before = filesOf(path)
      const next = supervise(path)
      const report = await next.reapOrphans({ dryRun: true })
      assert.deepEqual(filesOf(path), before)
      for (const { witness } of [orphan, keptOne, alive]) assertAlive(witness)
      const planned = report.decisions.map(({ pid, decision, outcome, dryRun }) => [
        pid,
        decision,
        outcome,
        dryRun,
      ])
      assert.deepEqual(planned, [
        [orphan.pid, 'end', 'planned', true],
        [keptOne.pid, 'end', 'planned', true],
        [dead.pid, 'end', 'planned', true],
        [alive.pid, 'leave', 'planned', true],
      ])
      assertReport(report, {})
      // A dry run does not bind later calls.
      const done = await next.reapOrphans()
      assert.deepEqual(done.killed.toSorted(), [orphan, keptOne, dead].map(({ pid }) => pid).toSorted())
    },
  )

  test('creates no registry file', options, async () => {
    const path = freshRegistry()
    assertReport(await supervise(path).reapOrphans({ dryRun: true }), {})
    assertReport(await supervise(path).reapOrphans(), {})
    assert.deepEqual(readdirSync(dirname(dirname(path))), [])
  })

  test('lists dead runs, and runs that would be skipped', options, async (t) => {
    const { pid, record, witness } = await mistaken(t, ({ startToken }) => ({ startToken: past(startToken) }))
    const boot = { startToken: altered(record.startToken, { boot: 'another', pid: pid + 1 }), pid: pid + 1 }
    const path = freshRegistry([record, { ...record, ...boot }])
    const report = await supervise(path).reapOrphans({ dryRun: true })
    assertReport(report, { skipped: [pid], alreadyDead: [pid + 1] })
    assert.equal(entriesOf(path).length, 2)
    assertAlive(witness)
  })
})

describe('a policy', together, () => {
  test("'terminate' ends an orphan", options, async (t) => {
    const { next, pid, witness } = await kept(t)
    assertReport(await next.reapOrphans({ policy: 'terminate' }), { killed: [pid] })
    assertGone(witness)
  })

  test(
    "'adopt' ends the remaining processes of an ended run, because it has no root to adopt",
    options,
    async (t) => {
      const exit = { atMs: Date.now(), reason: 'owner-exit', ending: 'owner-exit', exitCode: 0, signal: null }
      const ended = { state: 'exited', exit: { ...exit, survivors: 1 } }
      const { next, path, pid, witness } = await crashedAs(t, () => ended)
      assertReport(await next.reapOrphans({ policy: 'adopt' }), { killed: [pid] })
      assertGone(witness)
      await until(() => entriesOf(path).length === 0, 'no entry is left')
    },
  )

  test("'adopt' makes this bot the owner of an orphan", options, async (t) => {
    const { next, path, pid, runId, witness } = await kept(t)
    const report = await next.reapOrphans({ policy: 'adopt' })
    assertReport(report, { adopted: [pid] })
    assertAlive(witness)
    const [record] = report.adopted
    assert.deepEqual(
      [record.runId, record.botPid, record.ownerInstanceId],
      [runId, process.pid, next.instanceId],
    )
    await until(() => entriesOf(path)[0]?.botPid === process.pid, 'the file names the new owner')
    const run = await next.adopt(runId)
    assert.equal((await run.cancel()).reason, 'manual-cancel')
    assertGone(witness)
  })

  test('function is called for each orphan, and for no other run', options, async (t) => {
    const path = freshRegistry()
    const verdicts = { end: 'terminate', take: 'adopt', spare: 'leave' }
    const runs = {}
    for (const runId of Object.keys(verdicts)) runs[runId] = await kept(t, { path, runId })
    const alive = await owned(t, { path, runId: 'alive' })
    const calledFor = []
    const policy = (record) => {
      assert.ok(Object.isFrozen(record))
      calledFor.push(record.runId)
      return verdicts[record.runId]
    }
    const next = supervise(path)
    const report = await next.reapOrphans({ policy })
    assert.deepEqual(calledFor, Object.keys(verdicts))
    const expected = { killed: [runs.end.pid], adopted: [runs.take.pid], skipped: [runs.spare.pid] }
    assertReport(report, expected)
    assert.match(report.skipped[0].reason, /left by policy/)
    assertGone(runs.end.witness)
    for (const { witness } of [runs.take, runs.spare, alive]) assertAlive(witness)
    assert.deepEqual(
      report.decisions.map(({ runId, byPolicy }) => [runId, byPolicy]),
      [
        ['end', false],
        ['take', true],
        ['spare', true],
        ['alive', false],
      ],
    )
    // A run that the policy leaves is still an orphan.
    assertReport(await next.reapOrphans(), { killed: [runs.spare.pid] })
    await (await next.adopt('take')).cancel()
    assertGone(runs.take.witness)
  })

  const broken = {
    'that throws': [
      () => {
        throw new RangeError('a bug in the policy')
      },
      { name: 'RangeError' },
    ],
    'that returns an unknown value': [() => 'yes', { code: 'ERR_INVALID_RETURN_VALUE' }],
    'that returns a promise': [async () => 'terminate', { code: 'ERR_INVALID_RETURN_VALUE' }],
    'that is unknown': ['spare', { code: 'ERR_INVALID_ARG_VALUE' }],
    'that is a number': [7, { code: 'ERR_INVALID_ARG_TYPE' }],
  }
  for (const [what, [policy, error]] of Object.entries(broken)) {
    test(`${what} causes an error, and no run changes`, options, async (t) => {
      const path = freshRegistry()
      const first = await kept(t, { path })
      const second = await kept(t, { path })
      // The policy fails only for the second run.
      const answers =
        typeof policy === 'function' ? ({ pid }) => (pid === first.pid ? 'terminate' : policy()) : policy
      const before = first.next.list()
      await assert.rejects(first.next.reapOrphans({ policy: answers }), error)
      for (const { witness } of [first, second]) assertAlive(witness)
      assert.deepEqual(first.next.list(), before)
    })
  }
})

describe('reapOrphans refuses the arguments', together, () => {
  const rows = [
    [[0], 'ERR_OUT_OF_RANGE'],
    [[-1], 'ERR_OUT_OF_RANGE'],
    [[1.5], 'ERR_OUT_OF_RANGE'],
    [['1'], 'ERR_INVALID_ARG_TYPE'],
    [[process.pid, 7], 'ERR_INVALID_ARG_TYPE'],
    [[process.pid, null], 'ERR_INVALID_ARG_TYPE'],
    [[{ dryRun: 'yes' }], 'ERR_INVALID_ARG_TYPE'],
    [[{ stealFromLive: 1 }], 'ERR_INVALID_ARG_TYPE'],
    [[{ graceMs: -1 }], 'ERR_OUT_OF_RANGE'],
    [[{ graceMs: '1' }], 'ERR_INVALID_ARG_TYPE'],
  ]
  for (const [args, code] of rows) {
    test(JSON.stringify(args), options, async () => {
      await assert.rejects(supervise(freshRegistry()).reapOrphans(...args), { code })
    })
  }
})
