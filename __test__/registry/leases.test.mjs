// Leases: an owner that renews its lease keeps its runs, and a dead owner has none. An owner that
// is alive but does not renew loses its runs only to a reaper with stealFromLive. The theft is
// recorded before the first signal.
import { createSupervisor } from 'spawn-owned'
import {
  assertAlive,
  assertGone,
  fileHas,
  freshRegistry,
  keeperOf,
  killGroup,
  startBot,
  stateOf,
  stopKeeper,
  supervise,
  until,
} from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
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
import { isWindows, NO_STOPPING, posixOnly } from '../support/system.mjs'

const LEASE_MS = 1500
/** For tests in which the lease must not expire on a busy machine: two thirds of it are reserve. */
const LONG_LEASE_MS = 4500

/** Starts a run of a bot with a short lease. */
async function leased(t, { tree = treeNamed('half-setsid'), leaseMs = LEASE_MS, ...more } = {}) {
  const path = freshRegistry()
  const bot = await startBot(t, path, { leaseMs })
  const witness = openWitness(t)
  const [command, args] = tree.command(witness.path)
  const { runId, pid } = await bot.ask('spawn', command, args, { graceMs: 300, ...more })
  await witness.ready(tree.ready)
  return { bot, next: supervise(path), path, pid, runId, witness }
}

/** The same run after its bot was stopped and its lease expired. */
async function leasedByStoppedBot(t, more) {
  const run = await leased(t, more)
  run.bot.signal('SIGSTOP')
  await until(() => leaseOf(run) < Date.now(), 'the lease has expired')
  return run
}

const leaseOf = ({ next, pid }) => next.list({ pid })[0]?.leaseExpiresAtMs

describe('a lease', together, () => {
  test('is renewed after a third of its time', options, async (t) => {
    const leaseMs = LONG_LEASE_MS
    const run = await leased(t, { leaseMs })
    const first = leaseOf(run)
    assert.ok(first > Date.now() && first <= Date.now() + leaseMs)
    const second = await until(() => leaseOf(run) > first && leaseOf(run), 'the lease is renewed')
    // Renewed after a third of the lease, plus the delay of a busy machine, but before it expired.
    assert.ok(second - first >= leaseMs / 3 - 50 && second - first < leaseMs, `${second - first}`)
  })

  test('is renewed while the event loop is blocked', options, async (t) => {
    const run = await leased(t, { leaseMs: LONG_LEASE_MS })
    const blocked = run.bot.ask('block', 2 * LONG_LEASE_MS)
    // No earlier than the end of each lease that was granted before the block.
    const firstLeaseEnd = Date.now() + LONG_LEASE_MS
    await until(() => Date.now() > firstLeaseEnd, 'the first lease is over')
    assert.ok(leaseOf(run) > Date.now(), 'the lease is not renewed')
    const report = await run.next.reapOrphans({ stealFromLive: true })
    assert.deepEqual([report.killed, report.skipped], [[], []])
    assert.equal(report.decisions[0].facts.lease, 'valid')
    assertAlive(run.witness)
    await blocked
    assert.equal(await run.bot.ask('state', run.runId), 'running')
  })

  test('of a dead bot is void at once', options, async (t) => {
    const run = await leased(t, { leaseMs: 600_000, onOwnerExit: isWindows ? 'keep' : 'kill' })
    await run.bot.killWithHelpers()
    assert.ok(leaseOf(run) > Date.now() + 500_000)
    const { killed, decisions } = await run.next.reapOrphans()
    assert.deepEqual(killed, [run.pid])
    assert.equal(run.next.metrics().run_lease_steal_total, 0, 'no lease was stolen')
    assert.equal(decisions[0].facts.lease, 'valid')
    assertGone(run.witness)
  })

  test('cannot be shorter than a second or infinite', options, () => {
    for (const leaseMs of [0, 999, -1, Number.POSITIVE_INFINITY, Number.NaN]) {
      assert.throws(() => createSupervisor({ leaseMs }), { code: 'ERR_OUT_OF_RANGE' }, String(leaseMs))
    }
    assert.throws(() => createSupervisor({ leaseMs: '30000' }), { code: 'ERR_INVALID_ARG_TYPE' })
  })
})

describe('a stopped bot whose lease has expired', posixOnly(NO_STOPPING, together), () => {
  test('keeps its runs', options, async (t) => {
    const run = await leasedByStoppedBot(t)
    const { killed, skipped, decisions } = await run.next.reapOrphans()
    assert.deepEqual([killed, skipped], [[], []])
    assert.equal(decisions[0].facts.reason, 'lease-expired-owner-alive')
    assertAlive(run.witness)
    run.bot.signal('SIGCONT')
    assert.equal(await run.bot.ask('state', run.runId), 'running')
    await until(() => leaseOf(run) > Date.now(), 'the bot renews its lease')
    assert.deepEqual((await run.next.reapOrphans({ stealFromLive: true })).killed, [])
    assertAlive(run.witness)
  })

  test(
    'loses its runs to a reaper with stealFromLive, and gets their exits when it continues',
    options,
    async (t) => {
      const run = await leasedByStoppedBot(t)
      const waiting = run.bot.ask('wait', run.runId)
      const { killed } = await run.next.reapOrphans({ stealFromLive: true })
      assertGone(run.witness)
      assert.deepEqual(killed, [run.pid])
      const { run_lease_steal_total, run_reconcile_orphans_total } = run.next.metrics()
      assert.deepEqual([run_lease_steal_total, run_reconcile_orphans_total], [1, 1])
      run.bot.signal('SIGCONT')
      const exit = await waiting
      assert.deepEqual([exit.runId, exit.survivors], [run.runId, []])
      await fileHas(run.path, 0)
      assert.deepEqual(await run.bot.ask('list'), [])
    },
  )

  test('gets an event that its lease was lost', options, async (t) => {
    // The theft lasts until the test ends the run, so that the owner continues before that.
    const run = await leasedByStoppedBot(t, { tree: treeNamed('ignores-sigterm'), graceMs: 60_000 })
    const theft = run.next.reapOrphans({ stealFromLive: true })
    await until(() => run.next.list()[0].ownerInstanceId === run.next.instanceId, 'the theft is recorded')
    run.bot.signal('SIGCONT')
    const event = await until(
      async () => (await run.bot.ask('events')).find(({ type }) => type === 'lease'),
      'a lease event',
    )
    assert.deepEqual([event.kind, event.runIds], ['lost', [run.runId]])
    killGroup(run.pid)
    assert.deepEqual((await theft).killed, [run.pid])
    assertGone(run.witness)
    assert.deepEqual((await run.bot.ask('wait', run.runId)).survivors, [])
    await fileHas(run.path, 0)
  })

  test('loses its runs to only one of two reapers', options, async (t) => {
    const tree = { ready: 1, command: (path) => [program('marks-every-sigterm'), [path]] }
    const run = await leasedByStoppedBot(t, { tree })
    const reapers = [await startBot(t, run.path), await startBot(t, run.path)]
    const reports = await Promise.all(reapers.map((reaper) => reaper.ask('reap', { stealFromLive: true })))
    assertGone(run.witness)
    assert.deepEqual(
      reports.flatMap(({ killed }) => killed),
      [run.pid],
    )
    for (const { failed, alreadyDead, skipped } of reports) {
      assert.deepEqual([failed, alreadyDead, skipped], [[], [], []])
    }
    assert.equal(run.witness.count(CLEANED_UP), 1, 'the command got SIGTERM once')
  })

  test('stays the recorded owner of a run whose keeper refuses the adoption', options, async (t) => {
    const run = await leasedByStoppedBot(t, { onOwnerExit: 'keep' })
    const [before] = run.next.list()
    const report = await run.next.reapOrphans({ stealFromLive: true, policy: 'adopt' })
    assert.deepEqual(
      [report.failed.map(({ pid }) => pid), report.adopted, report.killed],
      [[run.pid], [], []],
    )
    assert.equal(run.next.metrics().run_reconcile_orphans_total, 0, 'the run was not adopted')
    assertAlive(run.witness)
    const [after] = run.next.list()
    assert.deepEqual([after.ownerInstanceId, after.botPid], [before.ownerInstanceId, run.bot.pid])
    run.bot.signal('SIGCONT')
    await until(() => leaseOf(run) > Date.now(), 'the bot renews its lease')
    await assert.rejects(run.next.adopt(run.runId), { code: 'ERR_OWNED_OWNER_ALIVE' })
    assert.equal((await run.bot.ask('cancelRun', run.runId)).reason, 'manual-cancel')
    assertGone(run.witness)
    await fileHas(run.path, 0)
  })
})

test('a theft is recorded before the first signal', posixOnly(NO_STOPPING, options), async (t) => {
  const run = await leasedByStoppedBot(t, { tree: treeNamed('ignores-sigterm'), graceMs: 60_000 })
  const [before] = run.next.list()
  // The keeper is stopped, so it cannot pass on a cancel. The reaper's first signal is the one that
  // wakes it.
  await stopKeeper(t, before)
  const theft = run.next.reapOrphans({ stealFromLive: true })
  const claimed = await until(() => {
    const isWoken = stateOf(keeperOf(before)) !== 'T'
    return isWoken && run.next.list()[0]
  }, 'the keeper was woken')
  assert.deepEqual([claimed.ownerInstanceId, claimed.botPid], [run.next.instanceId, process.pid])
  killGroup(run.pid)
  assert.deepEqual((await theft).killed, [run.pid])
  assertGone(run.witness)
})

test('each supervisor of a bot has its own lease', options, async (t) => {
  const path = freshRegistry()
  const supervisors = [supervise(path, { leaseMs: LONG_LEASE_MS }), supervise(path, { leaseMs: 60_000 })]
  const runs = supervisors.map(({ spawnOwned }) => spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] }))
  t.after(() => runs.map((run) => run.stdin.destroy()))
  const leases = () => {
    const records = supervisors[0].list()
    const of = ({ instanceId }) => records.find(({ ownerInstanceId }) => ownerInstanceId === instanceId)
    return supervisors.map((supervisor) => of(supervisor).leaseExpiresAtMs)
  }
  const [first, other] = leases()
  await until(() => leases()[0] > first, 'the short lease is renewed')
  const [renewed, same] = leases()
  assert.ok(renewed <= Date.now() + LONG_LEASE_MS, `${renewed}`)
  assert.equal(same, other, 'the long lease is not renewed')
  assert.ok(other > Date.now() + 30_000, `${other}`)
  await Promise.all(runs.map((run) => run.cancel()))
})
