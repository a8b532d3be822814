// Processes that reapOrphans must never signal: unproven process groups, reused PIDs, entries that
// name a protected process, and processes of other users.
import { chownSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { captureStartToken } from 'spawn-owned'
import {
  assertAlive,
  assertGone,
  bystander,
  entriesOf,
  fileHas,
  fill,
  freshRegistry,
  gone,
  past,
  startBot,
  statOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { inNamespace, namespace } from '../support/namespace.mjs'
import { assertReport, crashed, crashedAs, GRACE_MS, kept, mistaken, owned } from '../support/orphans.mjs'
import { assert, describe, openWitness, options, program, test, together } from '../support/prelude.mjs'
import {
  isWindows,
  NO_GROUPS,
  NO_KEEPER,
  NO_SESSIONS,
  NO_USERS,
  notInDeno,
  posixOnly,
} from '../support/system.mjs'

const asRoot = { ...options, skip: isWindows ? NO_USERS : process.getuid() !== 0 && 'needs root' }

describe('a process group whose root process is dead', posixOnly(NO_SESSIONS, together), () => {
  // The root is a shell with two children in its group. `prefix` starts the second one.
  const twoInGroup = (...prefix) => ({
    ready: 2,
    command: (path) => [
      'sh',
      [
        '-c',
        'exec 3>"$2"; p=$1 w=$2; shift 2; "$p" "$w" & "$@" "$p" "$w" & wait',
        'sh',
        program('stays'),
        path,
        ...prefix,
      ],
    ],
  })
  const bare = ['env', '-i']

  /** Kills the root process; the rest of the tree stays. */
  async function killRoot(pid) {
    process.kill(pid, 'SIGKILL')
    await gone(pid)
  }

  test('is ended if one of its processes carries the cookie', options, async (t) => {
    const { next, pid, witness } = await crashed(t, { tree: twoInGroup(...bare) })
    await killRoot(pid)
    assertAlive(witness)
    const report = await next.reapOrphans()
    assertGone(witness)
    assertReport(report, { killed: [pid] })
    const [{ facts }] = report.decisions
    assert.deepEqual([facts.reason, facts.root, facts.group], ['detached-orphaned', 'exited', 'ours'])
  })

  test('is not signalled if no member is proven to belong to the run', options, async (t) => {
    const line = 'exec 3>"$2"; env -i "$1" "$2" & wait'
    const command = (path) => ['sh', ['-c', line, 'sh', program('stays'), path]]
    const { next, pid, witness } = await crashed(t, { tree: { ready: 1, command } })
    await killRoot(pid)
    const report = await next.reapOrphans()
    assertReport(report, { skipped: [pid] })
    assert.match(report.skipped[0].reason, /none of them is proven/)
    assert.equal(report.decisions[0].facts.reason, 'group-unproven')
    assertAlive(witness)
    assert.equal(next.list().length, 1)
  })

  /** A registered leader of a process group with two more members; none has a cookie. */
  async function registered(t) {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const [command, args] = twoInGroup(...bare).command(witness.path)
    const pid = await bot.ask('child', command, args, { detached: true })
    await witness.ready(2)
    await bot.ask('register', { pid, runId: 'registered', graceMs: GRACE_MS })
    const next = supervise(path)
    const seen = () => next.list()[0].members?.length === 2
    await until(seen, 'the members of the group were recorded')
    const [record] = next.list()
    await bot.kill()
    return { next, path, pid, record, witness }
  }

  test('is ended if it was registered and a member was recorded', options, async (t) => {
    const { next, pid, witness } = await registered(t)
    await killRoot(pid)
    assertAlive(witness)
    const report = await next.reapOrphans()
    assertGone(witness)
    assertReport(report, { killed: [pid] })
    assert.equal(report.decisions[0].facts.reason, 'detached-orphaned')
  })

  test('is ended if one recorded member is left', options, async (t) => {
    const { next, pid, record, witness } = await registered(t)
    await killRoot(pid)
    process.kill(Number(record.members[0].split(':')[0]), 'SIGKILL')
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
  })

  test('is not signalled if it was registered and no member was recorded', options, async (t) => {
    const { pid, record, witness } = await registered(t)
    await killRoot(pid)
    const next = supervise(freshRegistry([{ ...record, members: [] }]))
    assertReport(await next.reapOrphans(), { skipped: [pid] })
    assertAlive(witness)
  })

  test('is not signalled if the PIDs of its recorded members are reused', options, async (t) => {
    const { pid, record, witness } = await registered(t)
    await killRoot(pid)
    const next = supervise(freshRegistry([{ ...record, members: record.members.map(past) }]))
    assertReport(await next.reapOrphans(), { skipped: [pid] })
    assertAlive(witness)
  })

  test('is adopted if the policy says so, and can then be cancelled', options, async (t) => {
    const { next, pid, witness } = await crashed(t, { tree: twoInGroup(...bare) })
    await killRoot(pid)
    const { adopted } = await next.reapOrphans({ policy: 'adopt' })
    assert.deepEqual(
      adopted.map((record) => record.pid),
      [pid],
    )
    assertAlive(witness)
    await next.cancel({ pid })
    assertGone(witness)
  })
})

describe('if the PID of the root process is reused', together, () => {
  // Real reuse is in reap-pid-reuse.test.mjs.
  const reused = ({ startToken }) => ({ startToken: past(startToken) })

  test(
    'by a process, it is not signalled, the report lists it, and the entry is dropped',
    options,
    async (t) => {
      const { next, path, pid, witness } = await mistaken(t, reused, { detached: false })
      const report = await next.reapOrphans()
      assertReport(report, { skipped: [pid] })
      assert.match(report.skipped[0].reason, /reused/)
      assert.equal(report.decisions[0].decision, 'drop-reused')
      assertAlive(witness)
      await fileHas(path, 0)
    },
  )

  test('by the leader of a new group, no member of that group is signalled', options, async (t) => {
    const stranger = { name: 'tree-of-100', processes: 100 }
    const { next, pid, witness } = await mistaken(t, reused, stranger)
    if (!isWindows) assert.equal(statOf(pid).group, pid)
    assertReport(await next.reapOrphans(), { skipped: [pid] })
    assertAlive(witness)
  })

  test(
    'and members of the run are alive in another group, only these are ended',
    posixOnly(NO_SESSIONS, options),
    async (t) => {
      const stranger = await bystander(t)
      const startToken = past(captureStartToken(stranger.pid))
      const { next, witness, record } = await crashedAs(t, () => ({
        pid: stranger.pid,
        pgid: stranger.pid,
        startToken,
      }))
      const report = await next.reapOrphans()
      assertReport(report, { killed: [record.pid] })
      assertGone(witness)
      assertAlive(stranger.witness)
    },
  )
})

test(
  'a process that an entry wrongly names as its keeper is not signalled',
  posixOnly(NO_KEEPER, options),
  async (t) => {
    const stranger = await bystander(t)
    const startToken = captureStartToken(stranger.pid)
    const { next, pid, witness } = await crashedAs(t, ({ keeper }) => ({ keeper: { ...keeper, startToken } }))
    await next.reapOrphans({ graceMs: 500 })
    assertAlive(stranger.witness)
    // The root is proven to be an orphan. It may be ended, or skipped because the entry is wrong.
    if (!witness.isGone()) assert.deepEqual(next.list()[0]?.pid, pid)
  },
)

test('a run with the same id in another registry is not touched', options, async (t) => {
  const runId = 'the-same'
  const other = await owned(t, { runId })
  const { next, pid, witness } = await crashed(t, { runId })
  assertReport(await next.reapOrphans(), { killed: [pid] })
  assertGone(witness)
  assertAlive(other.witness)
  assert.equal(await other.bot.ask('state', runId), 'running')
})

describe('without permission, reapOrphans', notInDeno(NO_GROUPS, { ...together, skip: asRoot.skip }), () => {
  const USER_A = 65_534

  async function reapAsUserA(t, record) {
    const path = freshRegistry([record])
    for (const it of [dirname(dirname(path)), dirname(path), path]) chownSync(it, USER_A, USER_A)
    const bot = await startBot(t, path)
    await bot.ask('become', USER_A)
    const report = await bot.ask('reap', { graceMs: 0 })
    const log = readFileSync(join(dirname(path), 'orphan-events.log'), 'utf8')
    return { report, left: await bot.ask('list'), log }
  }

  for (const [what, make] of Object.entries({ crashed, kept })) {
    test(
      `reports the ${what} run as failed with the reason, and leaves its entry unchanged`,
      asRoot,
      async (t) => {
        const { pid, record, witness, next } = await make(t, { tree: treeNamed('ignores-sigterm') })
        const { report, left, log } = await reapAsUserA(t, record)
        assertReport(report, { failed: [pid] })
        assert.match(report.failed[0].error, /not permitted|EPERM/)
        assert.match(log, new RegExp(`FAILED pid=${pid} .* reason=".*(not permitted|EPERM)`))
        assertAlive(witness)
        assert.deepEqual(
          left.map(({ ownerInstanceId, botStartToken }) => [ownerInstanceId, botStartToken]),
          [[record.ownerInstanceId, record.botStartToken]],
        )
        // A bot with permission ends it.
        assertReport(await next.reapOrphans(), { killed: [pid] })
        assertGone(witness)
      },
    )
  }
})

describe('reapOrphans skips an entry that names', together, () => {
  const named = async (t, pid) => {
    const { record } = await crashed(t)
    const startToken = captureStartToken(pid)
    assert.ok(startToken)
    const entry = { ...record, pid, startToken, pgid: pid, keeper: undefined, containment: 'group' }
    const path = freshRegistry([entry])
    return { next: supervise(path), path }
  }
  const rows = [
    ...(isWindows ? [] : [['PID 1', () => 1, /PID 1/]]),
    ['this process', () => process.pid, /this process is the recorded process/],
    ['an ancestor', () => process.ppid, /ancestor/],
  ]
  for (const [what, pidOf, reason] of rows) {
    test(what, options, async (t) => {
      const pid = pidOf()
      const { next, path } = await named(t, pid)
      // The dry run comes first: if it does not skip the entry, the test must not go on.
      for (const dryRun of [true, false]) {
        const report = await next.reapOrphans({ dryRun, graceMs: 0 })
        assertReport(report, { skipped: [pid] })
        assert.match(report.skipped[0].reason, reason)
      }
      assert.equal(entriesOf(path).length, 1)
    })
  }

  test('a PID below 100', inNamespace, async (t) => {
    // In a new PID namespace the first PIDs are low.
    const path = freshRegistry()
    const bot = await startBot(t, path, { within: namespace })
    const witness = openWitness(t)
    const pid = await bot.ask('child', program('stays'), [witness.path], { detached: true })
    await witness.ready(1)
    const startToken = await bot.ask('token', pid)
    const { record } = await crashed(t)
    const more = { startToken, botStartToken: past(startToken), keeper: undefined, containment: 'group' }
    fill(path, [{ ...record, pid, pgid: pid, botPid: pid, ...more }])
    const report = await bot.ask('reap')
    assertReport(report, { skipped: [pid] })
    assert.match(report.skipped[0].reason, /below 100/)
    assertAlive(witness)
  })
})
