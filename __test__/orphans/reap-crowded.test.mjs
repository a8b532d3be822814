// Many processes and supervisors act on the same run at once: they cancel, reap and adopt it.
// Exactly one action happens, completely, and all callers get the same result.
// (reap-at-once.test.mjs has two concurrent reapers.)
import { writeFileSync } from 'node:fs'
import {
  assertAlive,
  assertGone,
  fileHas,
  filesOf,
  freshRegistry,
  startBot,
  supervise,
} from '../support/bots.mjs'
import { assertReport, crashed, kept, owned } from '../support/orphans.mjs'
import { assert, CLEANED_UP, describe, options, test } from '../support/prelude.mjs'
import { NO_SHELL, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

/**
 * A tree that cleans up after SIGTERM, marks that, and exits with 7. It needs some seconds after
 * `saveNow`. By then the keeper has many control clients.
 */
const slowToSave = (seconds) => ({
  ready: 1,
  command: (path) => [
    'sh',
    [
      '-c',
      `exec 3>"$1"; trap 'trap "" TERM; until test -e "$1-now"; do sleep 0.05; done; sleep ${seconds}; printf c >&3; exit 7' TERM; printf r >&3; sleep 50 & wait`,
      'sh',
      path,
    ],
  ],
})
const saveNow = ({ path }) => writeFileSync(`${path}-now`, '')
/** A bot handles its requests in order, so it has begun the earlier ones when it answers this. */
const areAsked = (bots) => Promise.all(bots.map((bot) => bot.ask('instanceId')))
const GRACE_MS = 60_000

describe('a run that needs its grace period, and that many callers cancel at once,', together, () => {
  const groupsOfCallers = {
    'forty callers in four processes': async (t, path) => {
      const bots = []
      for (let i = 0; i < 4; i++) bots.push(await startBot(t, path))
      return async (runId) => {
        const cancels = bots.flatMap((bot) =>
          Array.from({ length: 10 }, () => bot.ask('cancel', runId, { graceMs: GRACE_MS })),
        )
        await areAsked(bots)
        return { cancels }
      }
    },
    'twenty supervisors in one process': (_, path) => {
      const supervisors = Array.from({ length: 20 }, () => supervise(path))
      return (runId) => ({ cancels: supervisors.map(({ cancel }) => cancel(runId, { graceMs: GRACE_MS })) })
    },
  }
  for (const [callers, prepare] of Object.entries(groupsOfCallers)) {
    test(
      `gets it, and all callers get the same result: ${callers}`,
      posixOnly(NO_SHELL, options),
      async (t) => {
        const { bot, path, runId, witness } = await owned(t, { tree: slowToSave(4) })
        const cancelAll = await prepare(t, path)
        const ended = bot.ask('wait', runId)
        const { cancels } = await cancelAll(runId)
        saveNow(witness)
        const results = await Promise.all(cancels)
        assertGone(witness)
        assert.equal(witness.count(CLEANED_UP), 1, 'it has cleaned up')
        const exits = results.map(({ outcome, exits }) => ({ outcome, exits: exits.map(inShort) }))
        const truth = { reason: 'manual-cancel', exitCode: 7, signal: null, survivors: [] }
        for (const result of exits) assert.deepEqual(result, { outcome: 'cancelled', exits: [truth] })
        assert.deepEqual(inShort(await ended), truth)
        await fileHas(path, 0)
      },
    )
  }

  test(
    'gets it also if its bot is dead and other callers reap it',
    posixOnly(NO_SHELL, options),
    async (t) => {
      const { path, pid, runId, witness } = await kept(t, { tree: slowToSave(4), graceMs: GRACE_MS })
      const bots = []
      for (let i = 0; i < 3; i++) bots.push(await startBot(t, path))
      const reports = bots.map((bot) => bot.ask('reap'))
      const cancels = bots.flatMap((bot) =>
        Array.from({ length: 8 }, () => bot.ask('cancel', runId, { graceMs: GRACE_MS })),
      )
      await areAsked(bots)
      saveNow(witness)
      const results = await Promise.all(cancels)
      const killed = (await Promise.all(reports)).flatMap((report) => {
        assert.deepEqual([report.failed, report.skipped, report.alreadyDead], [[], [], []])
        return report.killed
      })
      assertGone(witness)
      assert.equal(witness.count(CLEANED_UP), 1, 'it has cleaned up')
      assert.deepEqual(killed, [pid])
      for (const { exits } of results)
        for (const { exitCode, survivors } of exits) assert.deepEqual([exitCode, survivors], [7, []])
      await fileHas(path, 0)
    },
  )
})

describe('a kept run', together, () => {
  const ROUNDS = Number(process.env.STRESS_ROUNDS ?? 4)

  /** Asserts that one caller has adopted the run, or one caller has ended it, but not both. */
  function assertOneOfBoth({ pid, witness }, { adopted, killed }) {
    if (witness.isGone()) assert.deepEqual([adopted, killed], [[], [pid]])
    else assert.deepEqual([adopted, killed], [[pid], []])
  }

  test('is either adopted or ended when calls for both compete', options, async (t) => {
    for (let round = 0; round < ROUNDS; round++) {
      const run = await kept(t)
      // Two supervisors of one process count as one bot.
      const others = [run.next, supervise(run.path)]
      const reports = await Promise.all(
        others.flatMap(({ reapOrphans }) => [reapOrphans({ policy: 'adopt' }), reapOrphans()]),
      )
      const adopted = reports.flatMap((report) => report.adopted.map(({ pid }) => pid))
      assertOneOfBoth(run, { adopted, killed: reports.flatMap(({ killed }) => killed) })
      for (const { failed, skipped, alreadyDead } of reports)
        assert.deepEqual([failed, skipped, alreadyDead], [[], [], []])
      if (adopted.length) assert.equal((await run.next.cancel(run.runId)).outcome, 'cancelled')
      assertGone(run.witness)
    }
  })

  test('is not ended by a concurrent reapOrphans once its adoption has succeeded', options, async (t) => {
    for (let round = 0; round < ROUNDS; round++) {
      const run = await kept(t)
      const other = supervise(run.path)
      const calls = [
        run.next.adopt(run.runId),
        other.reapOrphans(),
        run.next.reapOrphans(),
        other.adopt(run.runId),
      ]
      const [first, reaped, reapedToo, second] = await Promise.allSettled(calls)
      const handles = [first, second].filter(({ status }) => status === 'fulfilled').map(({ value }) => value)
      // The handle of a run that has ended has the state 'exited'.
      const adopted = handles.some(({ state }) => state !== 'exited') ? [run.pid] : []
      const killed = [reaped, reapedToo].flatMap(({ value }) => value.killed)
      assertOneOfBoth(run, { adopted, killed })
      if (adopted.length) await run.next.cancel(run.runId)
      assertGone(run.witness)
    }
  })
})

describe('twelve calls of reapOrphans at once, in one supervisor,', together, () => {
  const twelve = (call) => Promise.all(Array.from({ length: 12 }, (_, i) => call(i)))

  /** Orphans of three bots. */
  async function orphans(t) {
    const path = freshRegistry()
    const runs = []
    for (let i = 0; i < 3; i++) runs.push(await crashed(t, { path }))
    return { next: supervise(path), path, runs, pids: runs.map(({ pid }) => pid).toSorted() }
  }

  test('six of them dry, end and report each orphan once', options, async (t) => {
    const { next, path, runs, pids } = await orphans(t)
    const reports = await twelve((i) => next.reapOrphans({ dryRun: i % 2 === 0 }))
    for (const { witness } of runs) assertGone(witness)
    assert.deepEqual(reports.flatMap(({ killed }) => killed).toSorted(), pids)
    for (const [i, { decisions, failed, skipped, alreadyDead }] of reports.entries()) {
      assert.deepEqual([failed, skipped], [[], []])
      for (const { dryRun } of decisions) assert.equal(dryRun, i % 2 === 0)
      if (i % 2 === 1) assert.deepEqual(alreadyDead, [])
    }
    await fileHas(path, 0)
  })

  test('all of them dry, change no file and signal no process', options, async (t) => {
    const { next, path, runs, pids } = await orphans(t)
    const before = filesOf(path)
    for (const report of await twelve(() => next.reapOrphans({ dryRun: true }))) {
      assertReport(report, {})
      const planned = report.decisions.filter(
        ({ decision, outcome }) => `${decision} ${outcome}` === 'end planned',
      )
      assert.deepEqual(planned.map(({ pid }) => pid).toSorted(), pids)
    }
    assert.deepEqual(filesOf(path), before)
    for (const { witness } of runs) assertAlive(witness)
    await next.reapOrphans()
  })

  test('each with its own policy, follow only that policy', options, async (t) => {
    const { next, runs, pids } = await orphans(t)
    const [mine, ...others] = pids
    // One call ends one orphan; the other eleven end none.
    const reports = await twelve((i) =>
      next.reapOrphans({ policy: ({ pid }) => (i === 5 && pid === mine ? 'terminate' : 'leave') }),
    )
    for (const [i, { killed, failed }] of reports.entries())
      assert.deepEqual([killed, failed], [i === 5 ? [mine] : [], []])
    for (const { pid, witness } of runs) (pid === mine ? assertGone : assertAlive)(witness)
    // The report lists them in start order, which can differ from the order of their PIDs.
    const { killed, ...rest } = await next.reapOrphans()
    assertReport({ ...rest, killed: killed.toSorted() }, { killed: others })
  })
})

const inShort = ({ reason, exitCode, signal, survivors }) => ({ reason, exitCode, signal, survivors })
