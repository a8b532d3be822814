// shutdown(): ends all runs of a supervisor in parallel, within a time limit, and nothing else.
import { shutdown, spawnOwned } from 'spawn-owned'
import {
  assertAlive,
  assertGone,
  bystander,
  freshRegistry,
  stopKeeper,
  supervise,
  until,
} from '../support/bots.mjs'
import { treeNamed, whyMissing } from '../support/hostile-trees.mjs'
import { kept } from '../support/orphans.mjs'
import { assert, CLEANED_UP, describe, FOR_EVER, openWitness, program, test } from '../support/prelude.mjs'
import { NO_KEEPER, notUnderWine, posixOnly, WINE_CANNOT_ASK } from '../support/system.mjs'

const options = { timeout: 30_000 }
const together = { timeout: 60_000, concurrency: 4 }
const ignoresSigterm = {
  name: 'ignores SIGTERM, but counts it',
  command: (path) => [program('marks-every-sigterm'), [path]],
  ready: 1,
}

/** Starts a run of a tree, and waits until it is ready. The test ends it. */
async function standing(t, supervisor, tree, more) {
  const witness = openWitness(t)
  const [command, args] = tree.command(witness.path)
  const run = supervisor.spawnOwned(command, args, { stdio: 'ignore', ...more })
  t.after(() => run.cancel({ signal: 'SIGKILL' }))
  await witness.ready(tree.ready)
  return { run, witness }
}

const stays = { name: 'stays', command: (path) => [program('stays'), [path]], ready: 1 }
const signalled = (witness) => until(() => witness.count(CLEANED_UP) > 0, 'the tree has got SIGTERM')
const refused = { code: 'ERR_OWNED_SHUTTING_DOWN', message: /Wait until shutdown\(\) resolves/ }

describe('shutdown ends', together, () => {
  test('hostile trees and registered processes', options, async (t) => {
    const owner = supervise(freshRegistry())
    const all = ['half-setsid', 'double-fork-daemon', 'cleared-environment', 'ignores-sigterm', 'stopped']
    const names = all.filter((name) => !whyMissing(treeNamed(name)))
    const runs = []
    for (const name of names) runs.push(await standing(t, owner, treeNamed(name), { runId: name }))
    const leader = await bystander(t, { name: 'ignores-sigterm', processes: 2 })
    owner.registerProcess({ pid: leader.pid, runId: 'registered' })

    const report = await owner.shutdown({ graceMs: 300 })

    for (const { witness } of [...runs, leader]) assertGone(witness)
    const expected = [...names, 'registered'].map((runId) => [runId, 'shutdown', []])
    const ended = report.exits.map(({ runId, reason, survivors }) => [runId, reason, survivors])
    assert.deepEqual(ended.toSorted(), expected.toSorted())
    assert.deepEqual(report.survivors, [])
    assert.match(report.exits[0].message, /shutdown/)
    assert.deepEqual([owner.list(), owner.metrics().run_exit_total.shutdown], [[], names.length])
    for (const { run } of runs) assert.equal((await run.wait()).reason, 'shutdown')
  })

  test('an adopted run', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const run = await next.adopt(runId)
    const { exits } = await next.shutdown({ graceMs: 300 })
    assertGone(witness)
    assert.deepEqual([exits.length, exits[0].reason, run.state], [1, 'shutdown', 'exited'])
  })

  test('a run during its adoption', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const adoption = next.adopt(runId)
    const { exits } = await next.shutdown({ graceMs: 300 })
    assertGone(witness)
    assert.deepEqual(exits, [await (await adoption).wait()])
    assert.equal(exits[0].reason, 'shutdown')
  })

  test(
    'a run that waits for its scope, before its start',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const owner = supervise(freshRegistry())
      const { run, witness } = await standing(t, owner, ignoresSigterm, {
        scopeKey: 'chat',
        graceMs: FOR_EVER,
      })
      const next = owner.spawnOwned('true', { runId: 'next', scopeKey: 'chat', replaceExistingScope: true })
      assert.equal(next.state, 'starting')
      await signalled(witness)
      const { exits } = await owner.shutdown({ graceMs: 0 })
      assertGone(witness)
      const { reason, message } = exits.find(({ runId }) => runId === 'next')
      assert.deepEqual([next.pid, next.state, reason], [undefined, 'exited', 'shutdown'])
      assert.match(message, /before it was started/)
      assert.equal(
        (await run.wait()).reason,
        'manual-cancel',
        'the earlier run was cancelled before the shutdown',
      )
    },
  )

  test('a run whose keeper is stopped', posixOnly(NO_KEEPER, options), async (t) => {
    const owner = supervise(freshRegistry())
    const { run, witness } = await standing(t, owner, stays)
    const [record] = await until(
      () => owner.list().filter(({ state }) => state === 'running').length && owner.list(),
      'the run is running',
    )
    await stopKeeper(t, record)
    const { exits } = await owner.shutdown({ graceMs: 100 })
    assertGone(witness)
    assert.deepEqual([exits.length, exits[0].reason, run.state], [1, 'shutdown', 'exited'])
  })

  test('the runs of the default supervisor', options, async (t) => {
    const other = await standing(t, supervise(freshRegistry()), stays)
    const { witness } = await standing(t, { spawnOwned }, stays)
    const { exits, survivors } = await shutdown()
    assertGone(witness)
    assert.deepEqual([exits.map(({ reason }) => reason), survivors], [['shutdown'], []])
    assertAlive(other.witness)
  })

  test('nothing if the supervisor has no run', options, async () => {
    const { exits, survivors } = await supervise(freshRegistry()).shutdown()
    assert.deepEqual([exits, survivors], [[], []])
  })
})

describe('shutdown leaves', together, () => {
  test('the runs of another supervisor on the same registry', options, async (t) => {
    const path = freshRegistry()
    const [owner, other] = [supervise(path), supervise(path)]
    const ours = await standing(t, owner, stays)
    const theirs = await standing(t, other, stays)
    const process = await bystander(t)
    other.registerProcess({ pid: process.pid })
    const { exits } = await owner.shutdown()
    assertGone(ours.witness)
    assert.equal(exits.length, 1)
    for (const { witness } of [theirs, process]) assertAlive(witness)
    assert.equal(other.list().length, 2)
  })

  test('kept runs with leaveKept, and the supervisor still owns them', options, async (t) => {
    const owner = supervise(freshRegistry())
    const lasting = await standing(t, owner, stays, { onOwnerExit: 'keep' })
    const passing = await standing(t, owner, stays)
    // A run without onOwnerExit 'keep' must not outlive the bot.
    const process = await bystander(t)
    owner.registerProcess({ pid: process.pid, runId: 'registered' })
    const { exits } = await owner.shutdown({ leaveKept: true })
    assertAlive(lasting.witness)
    for (const { witness } of [passing, process]) assertGone(witness)
    assert.deepEqual(exits.map(({ runId }) => runId).toSorted(), ['registered', passing.run.runId].toSorted())
    assert.equal(lasting.run.state, 'running')
    await lasting.run.cancel()
    assertGone(lasting.witness)
  })

  test('no kept run without leaveKept', options, async (t) => {
    const owner = supervise(freshRegistry())
    const { witness } = await standing(t, owner, stays, { onOwnerExit: 'keep' })
    await owner.shutdown()
    assertGone(witness)
  })
})

describe('shutdown takes', together, () => {
  test(
    '5 s by default, whatever grace period the runs have, and then sends SIGKILL',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const owner = supervise(freshRegistry(), { graceMs: FOR_EVER })
      const { witness } = await standing(t, owner, ignoresSigterm, { graceMs: FOR_EVER })
      const { durationMs, exits } = await owner.shutdown()
      assertGone(witness)
      assert.equal(witness.count(CLEANED_UP), 1, 'the tree got SIGTERM once')
      // 6 s is the limit. The rest is for a busy machine.
      assert.ok(durationMs >= 5000 && durationMs < 9000, `${durationMs} ms`)
      assert.equal(exits[0].reason, 'shutdown')
    },
  )

  test('no longer than the last run needs', notUnderWine(WINE_CANNOT_ASK, options), async (t) => {
    const owner = supervise(freshRegistry())
    const tree = { command: (path) => [program('cleans-up-on-sigterm'), [path]], ready: 2 }
    const { witness } = await standing(t, owner, tree)
    await owner.shutdown({ graceMs: FOR_EVER })
    assertGone(witness)
    assert.equal(witness.count(CLEANED_UP), 2)
  })

  test(
    'less time if a second call has a shorter grace period, and both calls return the same result',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const owner = supervise(freshRegistry())
      const { witness } = await standing(t, owner, ignoresSigterm)
      const registered = await bystander(t, { name: 'marks-every-sigterm' })
      owner.registerProcess({ pid: registered.pid })
      const patient = owner.shutdown({ graceMs: FOR_EVER })
      await signalled(witness)
      await signalled(registered.witness)
      const more = owner.shutdown({ graceMs: 2 * FOR_EVER })
      assertAlive(witness)
      const hasty = await owner.shutdown({ graceMs: 0 })
      for (const it of [witness, registered.witness]) assertGone(it)
      assert.equal(hasty.exits.length, 2)
      assert.deepEqual([await patient, await more], [hasty, hasty])
    },
  )

  test(
    'into account a second call without leaveKept, and ends the kept runs too',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const owner = supervise(freshRegistry())
      const passing = await standing(t, owner, ignoresSigterm)
      const lasting = await standing(t, owner, stays, { onOwnerExit: 'keep' })
      const sparing = owner.shutdown({ graceMs: FOR_EVER, leaveKept: true })
      await signalled(passing.witness)
      assertAlive(lasting.witness)
      const whole = owner.shutdown({ graceMs: FOR_EVER })
      await lasting.witness.gone(10_000)
      await owner.shutdown({ graceMs: 0, leaveKept: true })
      assert.equal((await sparing).exits.length, 2)
      assert.deepEqual(await whole, await sparing)
    },
  )
})

describe('during a shutdown', together, () => {
  test(
    'the supervisor accepts no new run; afterwards it does',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const path = freshRegistry()
      const { runId } = await kept(t, { path })
      const orphan = await kept(t, { path, runId: 'orphan' })
      const owner = supervise(path)
      const { witness } = await standing(t, owner, ignoresSigterm)
      const unrelated = await bystander(t)
      const ending = owner.shutdown({ graceMs: FOR_EVER })

      assert.throws(() => owner.spawnOwned('true'), refused)
      assert.throws(() => owner.registerProcess({ pid: unrelated.pid }), refused)
      await assert.rejects(owner.adopt(runId), refused)
      await assert.rejects(owner.reapOrphans({ policy: 'adopt' }), refused)
      assertAlive(orphan.witness)
      const { decisions } = await owner.reapOrphans({ policy: 'adopt', dryRun: true })
      assert.equal(decisions.filter(({ decision }) => decision === 'adopt').length, 2, 'a dry run is allowed')

      await signalled(witness)
      await owner.shutdown({ graceMs: 0 })
      await ending
      assert.equal((await owner.spawnOwned('true', { stdio: 'ignore' }).wait()).reason, 'exit')
      const { killed } = await owner.reapOrphans()
      assert.equal(killed.length, 2)
    },
  )

  test('the supervisor emits the events shutdown begin and shutdown end', options, async (t) => {
    const owner = supervise(freshRegistry())
    const { run } = await standing(t, owner, stays)
    await until(() => owner.events.some(({ type }) => type === 'started'), 'the run has started')
    const { durationMs } = await owner.shutdown({ graceMs: 700 })
    const about = owner.events.filter(({ type, runId }) => type === 'shutdown' || runId === run.runId)
    const later = about.slice(about.findIndex(({ type }) => type === 'shutdown'))
    const names = later.map(({ type, phase, reason }) => [type, phase ?? reason].join(' ').trim())
    assert.deepEqual(names, ['shutdown begin', 'exiting shutdown', 'exited', 'shutdown end'])
    const { atMs, ...begin } = later[0]
    assert.deepEqual(begin, { type: 'shutdown', phase: 'begin', runs: 1, graceMs: 700, leaveKept: false })
    const { atMs: later_, ...end } = later.at(-1)
    assert.deepEqual(end, { type: 'shutdown', phase: 'end', runs: 1, survivors: 0, durationMs })
    assert.ok(atMs <= later_ && later_ <= Date.now())
  })
})

describe('shutdown rejects invalid options, and ends nothing:', together, () => {
  for (const [wrong, code, message] of [
    [7, 'ERR_INVALID_ARG_TYPE', /"options"/],
    [{ graceMs: '5' }, 'ERR_INVALID_ARG_TYPE', /options\.graceMs/],
    [{ graceMs: -1 }, 'ERR_OUT_OF_RANGE', /options\.graceMs/],
    [{ leaveKept: 1 }, 'ERR_INVALID_ARG_TYPE', /options\.leaveKept/],
  ]) {
    test(JSON.stringify(wrong), options, async (t) => {
      const owner = supervise(freshRegistry())
      const { witness } = await standing(t, owner, stays)
      await assert.rejects(owner.shutdown(wrong), { code, message })
      assertAlive(witness)
      assert.equal((await owner.spawnOwned('true').wait()).reason, 'exit', 'the supervisor accepts new runs')
    })
  }
})
