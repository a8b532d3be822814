// Each field of a registry entry in turn names a bystander. Only processes that the entry proves
// to belong to the run are ended.
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { captureStartToken } from 'spawn-owned'
import {
  altered,
  assertAlive,
  assertGone,
  bystander,
  freshRegistry,
  past,
  supervise,
  until,
} from '../support/bots.mjs'
import { base, unavailable } from '../support/cgroups.mjs'
import { crashed, kept, owned } from '../support/orphans.mjs'
import { assert, options, together } from '../support/prelude.mjs'
import { NO_KEEPER, posixTests } from '../support/system.mjs'

const { describe, test } = posixTests(NO_KEEPER)

/**
 * Changes of an entry that make one or more fields name the bystander. The second value says
 * whether the entry still proves the processes of the run.
 */
const fields = {
  pid: [({ pid }) => ({ pid }), false],
  'pid and group': [({ pid }) => ({ pid, pgid: pid }), false],
  'start token': [({ token }) => ({ startToken: token }), false],
  'pid and half a token: another start': [
    ({ pid, token }) => ({ pid, pgid: pid, startToken: past(token) }),
    true,
  ],
  'pid and half a token: another boot': [
    ({ pid, token }) => ({ pid, pgid: pid, startToken: altered(token, { boot: 'another' }) }),
    false,
  ],
  'pid and half a token: another namespace': [
    ({ pid, token }) => ({ pid, pgid: pid, startToken: altered(token, { ns: 1 }) }),
    false,
  ],
  group: [({ pid }) => ({ pgid: pid }), true],
  'group -1': [() => ({ pgid: -1 }), false],
  'group 0': [() => ({ pgid: 0 }), false],
  keeper: [({ token }) => ({ keeper: { startToken: token, address: '00000' } }), true],
  'keeper’s address': [
    (_, record, other) => ({ keeper: { ...record.keeper, address: other.keeper.address } }),
    true,
  ],
  'keeper, and its address': [(_, __, other) => ({ keeper: other.keeper }), true],
  member: [({ token }) => ({ members: [token] }), true],
  'member of a registered group': [
    ({ token }) => ({ members: [token], containment: 'group', keeper: undefined }),
    true,
  ],
  'run id: that of a run that has a keeper': [(_, __, other) => ({ runId: other.runId }), true],
  'owner: a bystander that is alive': [({ pid, token }) => ({ botPid: pid, botStartToken: token }), false],
  'owner, and not its token': [({ pid }) => ({ botPid: pid }), false],
  service: [() => ({ service: 'x' }), false],
  exit: [
    () => ({ state: 'exited', exit: { atMs: 1, ending: 'x', exitCode: 0, signal: null, survivors: 0 } }),
    false,
  ],
}

/** The fields that can matter if the keeper is alive. */
const KEPT = Object.keys(fields).filter((what) => /keeper|token|run id|exit|service/.test(what))

describe('if a field of an entry names a bystander, reapOrphans does not signal it:', together, () => {
  for (const [what, [alter, isOurs]] of Object.entries(fields)) {
    for (const make of KEPT.includes(what) ? [crashed, kept] : [crashed]) {
      test(`${what}, of a run that was ${make === kept ? 'kept' : 'left'}`, options, async (t) => {
        const stranger = await bystander(t)
        const other = await owned(t)
        const run = await make(t)
        const entry = alter(
          { pid: stranger.pid, token: captureStartToken(stranger.pid) },
          run.record,
          other.record,
        )
        const next = supervise(freshRegistry([{ ...run.record, ...entry }]))
        await next.reapOrphans({ graceMs: 200 })
        await next.cancel(run.runId, { graceMs: 200 })
        assertAlive(stranger.witness)
        assertAlive(other.witness)
        assert.equal(await other.bot.ask('state', other.runId), 'running')
        // A live keeper may get no cancel, because the entry no longer leads to it.
        if (isOurs && make === crashed) assertGone(run.witness)
        // The other registry still has the correct entry.
        await run.next.reapOrphans({ graceMs: 200 })
        assertGone(run.witness)
      })
    }
  }
})

/** The name of a run's cgroup, which contains the start token of its keeper. */
const nameFor = ({ keeper }) => `spawn-owned-${keeper.startToken.split(':').slice(0, 3).join('-')}`

test('an ordinary folder with the name of the run’s cgroup is not used as a cgroup', options, async (t) => {
  const run = await crashed(t)
  const folder = join(freshRegistry(), '..', '..', nameFor(run.record))
  mkdirSync(folder)
  const stranger = await bystander(t)
  writeFileSync(join(folder, 'cgroup.procs'), `${stranger.pid}\n`)
  writeFileSync(join(folder, 'cgroup.kill'), '')
  const next = supervise(freshRegistry([{ ...run.record, cgroup: folder, containment: 'cgroup' }]))
  await next.reapOrphans({ graceMs: 200 })
  assertGone(run.witness)
  assertAlive(stranger.witness)
  assert.equal(readFileSync(join(folder, 'cgroup.kill'), 'utf8'), '')
})

test('reapOrphans kills no cgroup of another name, also if its path contains the right name', {
  ...options,
  skip: unavailable,
}, async (t) => {
  const run = await crashed(t)
  const stranger = await bystander(t)
  const theirs = join(base, `test-${process.pid}-theirs`)
  mkdirSync(theirs)
  writeFileSync(join(theirs, 'cgroup.procs'), String(stranger.pid))
  // The bystander ends with its witness, after the test.
  t.after(async () => {
    await until(() => !readFileSync(join(theirs, 'cgroup.procs'), 'utf8'), 'the cgroup is empty')
    rmdirSync(theirs)
  })
  for (const cgroup of [
    theirs,
    `${theirs}/`,
    `${theirs}/../${nameFor(run.record)}/../test-${process.pid}-theirs`,
  ]) {
    const next = supervise(freshRegistry([{ ...run.record, cgroup, containment: 'cgroup' }]))
    await next.reapOrphans({ graceMs: 200 })
    assertGone(run.witness)
    assertAlive(stranger.witness)
    assert.ok(existsSync(theirs))
  }
})
