// Each field of an entry is pointed at a bystander, and all of them, in turn: what the entry proves is ended, and nobody else is.
import assert from 'node:assert/strict'
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
} from './support/bots.mjs'
import { base, unavailable } from './support/cgroups.mjs'
import { crashed, kept, owned } from './support/orphans.mjs'
import { NO_KEEPER, posixTests } from './support/system.mjs'

const { describe, test } = posixTests(NO_KEEPER)
const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 4 }

/** An entry with one field, or a few, that mean the bystander. `ours`: whether what was the run's is still proven by it. */
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
  'owner: a bystander, who lives': [({ pid, token }) => ({ botPid: pid, botStartToken: token }), false],
  'owner, and not its token': [({ pid }) => ({ botPid: pid }), false],
  service: [() => ({ service: 'x' }), false],
  exit: [
    () => ({ state: 'exited', exit: { atMs: 1, ending: 'x', exitCode: 0, signal: null, survivors: 0 } }),
    false,
  ],
}

/** What may make a difference to a keeper that lives. */
const KEPT = Object.keys(fields).filter((what) => /keeper|token|run id|exit|service/.test(what))

describe('a field that means a bystander: only the run is ended, or nobody:', together, () => {
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
        // Its keeper is asked by what is right about the entry, or not at all.
        if (isOurs && make === crashed) assertGone(run.witness)
        // What is true of it is in the other registry still.
        await run.next.reapOrphans({ graceMs: 200 })
        assertGone(run.witness)
      })
    }
  }
})

/** What a run's cgroup is called, which bears the name of its keeper. */
const nameFor = ({ keeper }) => `spawn-owned-${keeper.startToken.split(':').slice(0, 3).join('-')}`

test('a folder that bears the keeper’s name is no cgroup', options, async (t) => {
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

test('a cgroup with another name, and a way to it by the right one', {
  ...options,
  skip: unavailable,
}, async (t) => {
  const run = await crashed(t)
  const stranger = await bystander(t)
  const theirs = join(base, `test-${process.pid}-theirs`)
  mkdirSync(theirs)
  writeFileSync(join(theirs, 'cgroup.procs'), String(stranger.pid))
  // It goes with its witness, which goes with the test.
  t.after(async () => {
    await until(() => !readFileSync(join(theirs, 'cgroup.procs'), 'utf8'), 'it is empty')
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
