// shutdown(): everything a supervisor answers for is ended at once, within bounds, and nothing else is.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { shutdown, spawnOwned } from 'spawn-owned'
import {
  assertAlive,
  assertGone,
  bystander,
  freshRegistry,
  stopKeeper,
  supervise,
  until,
} from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { treeNamed, whyMissing } from './support/hostile-trees.mjs'
import { kept } from './support/orphans.mjs'
import { NO_KEEPER, notUnderWine, posixOnly, WINE_CANNOT_ASK } from './support/system.mjs'
import { CLEANED_UP, openWitness } from './support/witness.mjs'

const options = { timeout: 30_000 }
const together = { timeout: 60_000, concurrency: 4 }
const FOR_EVER = 1e8
const deaf = {
  name: 'deaf, but counts',
  command: (path) => [program('marks-every-sigterm'), [path]],
  ready: 1,
}

/** A run of a tree that stands. It goes with the test. */
async function standing(t, supervisor, tree, more) {
  const witness = openWitness(t)
  const [command, args] = tree.command(witness.path)
  const run = supervisor.spawnOwned(command, args, { stdio: 'ignore', ...more })
  t.after(() => run.cancel({ signal: 'SIGKILL' }))
  await witness.ready(tree.ready)
  return { run, witness }
}

const stays = { name: 'stays', command: (path) => [program('stays'), [path]], ready: 1 }
const asked = (witness) => until(() => witness.count(CLEANED_UP) > 0, 'it has got SIGTERM')
const refused = { code: 'ERR_OWNED_SHUTTING_DOWN', message: /wait until shutdown\(\) has resolved/ }

describe('what it ends', together, () => {
  test('runs, whatever their trees do, and registered processes', options, async (t) => {
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
    const told = report.exits.map(({ runId, reason, survivors }) => [runId, reason, survivors])
    assert.deepEqual(told.toSorted(), expected.toSorted())
    assert.deepEqual(report.survivors, [])
    assert.match(report.exits[0].message, /shutdown/)
    assert.deepEqual([owner.list(), owner.metrics().run_exit_total.shutdown], [[], names.length])
    for (const { run } of runs) assert.equal((await run.wait()).reason, 'shutdown')
  })

  test('a run that was taken over', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const run = await next.adopt(runId)
    const { exits } = await next.shutdown({ graceMs: 300 })
    assertGone(witness)
    assert.deepEqual([exits.length, exits[0].reason, run.state], [1, 'shutdown', 'exited'])
  })

  test('a run that is being taken over', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const adoption = next.adopt(runId)
    const { exits } = await next.shutdown({ graceMs: 300 })
    assertGone(witness)
    assert.deepEqual(exits, [await (await adoption).wait()])
    assert.equal(exits[0].reason, 'shutdown')
  })

  test(
    'a run that waits for its scope: it never starts',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const owner = supervise(freshRegistry())
      const { run, witness } = await standing(t, owner, deaf, { scopeKey: 'chat', graceMs: FOR_EVER })
      const next = owner.spawnOwned('true', { runId: 'next', scopeKey: 'chat', replaceExistingScope: true })
      assert.equal(next.state, 'starting')
      await asked(witness)
      const { exits } = await owner.shutdown({ graceMs: 0 })
      assertGone(witness)
      const { reason, message } = exits.find(({ runId }) => runId === 'next')
      assert.deepEqual([next.pid, next.state, reason], [undefined, 'exited', 'shutdown'])
      assert.match(message, /before it was started/)
      assert.equal((await run.wait()).reason, 'manual-cancel', 'it was being replaced before that')
    },
  )

  test('a run whose keeper was stopped', posixOnly(NO_KEEPER, options), async (t) => {
    const owner = supervise(freshRegistry())
    const { run, witness } = await standing(t, owner, stays)
    const [record] = await until(
      () => owner.list().filter(({ state }) => state === 'running').length && owner.list(),
      'it runs',
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

  test('nothing, if there is nothing', options, async () => {
    const { exits, survivors } = await supervise(freshRegistry()).shutdown()
    assert.deepEqual([exits, survivors], [[], []])
  })
})

describe('what it leaves', together, () => {
  test('what another supervisor on the same registry answers for', options, async (t) => {
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

  test('kept runs, if that is wanted: they are ours as before', options, async (t) => {
    const owner = supervise(freshRegistry())
    const lasting = await standing(t, owner, stays, { onOwnerExit: 'keep' })
    const passing = await standing(t, owner, stays)
    // Nobody has said that it may outlive the bot.
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

  test('kept runs are ended otherwise', options, async (t) => {
    const owner = supervise(freshRegistry())
    const { witness } = await standing(t, owner, stays, { onOwnerExit: 'keep' })
    await owner.shutdown()
    assertGone(witness)
  })
})

describe('the time it takes', together, () => {
  test(
    '5 s, whatever grace the runs have, and then SIGKILL',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const owner = supervise(freshRegistry(), { graceMs: FOR_EVER })
      const { witness } = await standing(t, owner, deaf, { graceMs: FOR_EVER })
      const { durationMs, exits } = await owner.shutdown()
      assertGone(witness)
      assert.equal(witness.count(CLEANED_UP), 1, 'it was asked politely, once')
      // It is to be 6 s at most; the rest is for a machine that has something else to do.
      assert.ok(durationMs >= 5000 && durationMs < 9000, `${durationMs} ms`)
      assert.equal(exits[0].reason, 'shutdown')
    },
  )

  test('no longer than the last of them needs', notUnderWine(WINE_CANNOT_ASK, options), async (t) => {
    const owner = supervise(freshRegistry())
    const tree = { command: (path) => [program('cleans-up-on-sigterm'), [path]], ready: 2 }
    const { witness } = await standing(t, owner, tree)
    await owner.shutdown({ graceMs: FOR_EVER })
    assertGone(witness)
    assert.equal(witness.count(CLEANED_UP), 2)
  })

  test(
    'less, if a second caller is in a hurry; both get the same result',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const owner = supervise(freshRegistry())
      const { witness } = await standing(t, owner, deaf)
      const registered = await bystander(t, { name: 'marks-every-sigterm' })
      owner.registerProcess({ pid: registered.pid })
      const patient = owner.shutdown({ graceMs: FOR_EVER })
      await asked(witness)
      await asked(registered.witness)
      const more = owner.shutdown({ graceMs: 2 * FOR_EVER })
      assertAlive(witness)
      const hasty = await owner.shutdown({ graceMs: 0 })
      for (const it of [witness, registered.witness]) assertGone(it)
      assert.equal(hasty.exits.length, 2)
      assert.deepEqual([await patient, await more], [hasty, hasty])
    },
  )

  test('a second caller may want the kept ones too', notUnderWine(WINE_CANNOT_ASK, options), async (t) => {
    const owner = supervise(freshRegistry())
    const passing = await standing(t, owner, deaf)
    const lasting = await standing(t, owner, stays, { onOwnerExit: 'keep' })
    const sparing = owner.shutdown({ graceMs: FOR_EVER, leaveKept: true })
    await asked(passing.witness)
    assertAlive(lasting.witness)
    const whole = owner.shutdown({ graceMs: FOR_EVER })
    await lasting.witness.gone(10_000)
    await owner.shutdown({ graceMs: 0, leaveKept: true })
    assert.equal((await sparing).exits.length, 2)
    assert.deepEqual(await whole, await sparing)
  })
})

describe('meanwhile', together, () => {
  test(
    'nothing new becomes its own, and afterwards it does',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const path = freshRegistry()
      const { runId } = await kept(t, { path })
      const orphan = await kept(t, { path, runId: 'orphan' })
      const owner = supervise(path)
      const { witness } = await standing(t, owner, deaf)
      const stranger = await bystander(t)
      const ending = owner.shutdown({ graceMs: FOR_EVER })

      assert.throws(() => owner.spawnOwned('true'), refused)
      assert.throws(() => owner.registerProcess({ pid: stranger.pid }), refused)
      await assert.rejects(owner.adopt(runId), refused)
      await assert.rejects(owner.reapOrphans({ policy: 'adopt' }), refused)
      assertAlive(orphan.witness)
      const { decisions } = await owner.reapOrphans({ policy: 'adopt', dryRun: true })
      assert.equal(
        decisions.filter(({ decision }) => decision === 'adopt').length,
        2,
        'to look is no offence',
      )

      await asked(witness)
      await owner.shutdown({ graceMs: 0 })
      await ending
      assert.equal((await owner.spawnOwned('true', { stdio: 'ignore' }).wait()).reason, 'exit')
      const { killed } = await owner.reapOrphans()
      assert.equal(killed.length, 2)
    },
  )

  test('it says that it begins, and that it is over', options, async (t) => {
    const owner = supervise(freshRegistry())
    const { run } = await standing(t, owner, stays)
    await until(() => owner.events.some(({ type }) => type === 'started'), 'it has started')
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

describe('refused, and nothing is touched:', together, () => {
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
      assert.equal((await owner.spawnOwned('true').wait()).reason, 'exit', 'it is open')
    })
  }
})
