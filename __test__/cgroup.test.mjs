// Runs with a cgroup of their own: whoever is in it is ended, wherever else it went; and nothing that is not the run's.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { list, spawnOwned } from 'spawn-owned'
import {
  altered,
  assertAlive,
  assertGone,
  bystander,
  childrenOf,
  freshRegistry,
  gone,
  keeperOf,
  startBot,
  supervise,
  until,
} from './support/bots.mjs'
import { assertOver, inCgroup, standing } from './support/cgroup-runs.mjs'
import {
  base,
  cgroupOf,
  controllers,
  foreignCgroup,
  isEmpty,
  isIn,
  killAll,
  moveInto,
  runCgroups,
  unavailable,
} from './support/cgroups.mjs'
import { program } from './support/fixtures.mjs'
import { hostileTrees, treeNamed } from './support/hostile-trees.mjs'
import { assertReport, crashed, crashedAs, kept, owned } from './support/orphans.mjs'
import { linuxTests, NO_CGROUPS } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const { describe, test } = linuxTests(NO_CGROUPS)

const options = { timeout: 30_000, skip: unavailable }
const together = { timeout: 60_000, concurrency: 4, skip: unavailable }

test(
  'the command is in it, its keeper and its bot are not, and the record says where',
  options,
  async (t) => {
    const { run, record, ...rest } = await standing(t, treeNamed('half-setsid'))
    assert.equal(record.containment, 'cgroup')
    assert.equal(dirname(record.cgroup), base)
    const [keeper, start, namespace] = record.keeper.startToken.split(':')
    assert.equal(basename(record.cgroup), `spawn-owned-${keeper}-${start}-${namespace}`)
    const members = readFileSync(join(record.cgroup, 'cgroup.procs'), 'utf8').trim().split('\n')
    assert.equal(members.length, 33)
    assert.ok(members.includes(`${run.pid}`))
    for (const pid of [keeper, process.pid]) assert.equal(cgroupOf(pid), cgroupOf('self'))
    assertOver(await run.cancel(), { ...rest }, 'manual-cancel')
  },
)

/** A command that says in which cgroup it has started, and stays until its input ends. */
async function says(more) {
  const run = spawnOwned('cat', ['/proc/self/cgroup', '-'], more)
  const [record] = list({ runId: run.runId })
  run.stdin.end()
  const lines = (await run.stdout.toArray()).join('').split('\n')
  return { exit: await run.wait(), record, cgroup: lines.find((line) => line.startsWith('0::')).slice(3) }
}

test(
  'a command finds itself in it when it starts, and it is gone with its last process',
  options,
  async () => {
    const { exit, record, cgroup } = await says(inCgroup)
    assert.equal(basename(cgroup), basename(record.cgroup))
    assert.equal(exit.reason, 'exit')
    assert.equal(existsSync(record.cgroup), false)
  },
)

test('one that cannot be executed leaves none', options, async (t) => {
  const bot = await startBot(t, freshRegistry())
  await bot.ask('spawn', 'true', [], inCgroup).then(({ runId }) => bot.ask('wait', runId))
  const before = new Set(runCgroups())
  const failed = spawnOwned('/no/such/program', inCgroup)
  const error = await new Promise((resolve) => failed.on('error', resolve))
  assert.equal(error.code, 'ENOENT')
  // Others may make some of their own meanwhile, but do not keep them.
  await until(() => runCgroups().every((name) => before.has(name)), 'none is left')
})

describe('cancelled in a cgroup, nothing stays of', together, () => {
  for (const tree of hostileTrees) {
    test(tree.name, options, async (t) => {
      const { run, ...rest } = await standing(t, tree)
      assertOver(await run.cancel(), rest, 'manual-cancel')
    })
  }
})

test('cgroups that the command has made, and whoever is in them, go with it', options, async (t) => {
  const witness = openWitness(t)
  const line = 'mkdir -p "$1/a/b" && echo 0 > "$1/a/b/cgroup.procs" && exec "$2" "$3"'
  const script = `cg=$(sed -n 's|^0::.*/||p' /proc/self/cgroup); set -- "${base}/$cg" "$@"; ${line}`
  const run = spawnOwned('sh', ['-c', script, 'sh', program('stays'), witness.path], {
    stdio: 'ignore',
    ...inCgroup,
  })
  await witness.ready(1)
  const [{ cgroup }] = list({ runId: run.runId })
  assert.ok(isIn(run.pid, join(cgroup, 'a/b')))
  assertOver(await run.cancel(), { witness, cgroup }, 'manual-cancel')
})

describe('somebody who was put into the cgroup', together, () => {
  const guests = { stays: 1, 'ignores-sigterm': 2 }
  for (const [name, processes] of Object.entries(guests)) {
    test(`keeps the run from being over, and is ended when the root is gone: ${name}`, options, async (t) => {
      const run = spawnOwned('cat', { graceMs: 250, ...inCgroup })
      const [{ cgroup }] = list({ runId: run.runId })
      const { pid, witness } = await bystander(t, { name, processes })
      for (const guest of [pid, ...childrenOf(pid)]) moveInto(cgroup, guest)
      run.stdin.end()
      assertOver(await run.wait(), { witness, cgroup }, 'exit')
    })
  }

  test('and has left it again is nobody of the run’s', options, async (t) => {
    const { run, ...rest } = await standing(t, treeNamed('half-setsid'))
    const guest = await bystander(t)
    moveInto(rest.cgroup, guest.pid)
    moveInto(base, guest.pid)
    assertOver(await run.cancel(), rest, 'manual-cancel')
    assertAlive(guest.witness)
  })
})

test('one who has gone to another cgroup is still a descendant, and ended', options, async (t) => {
  const elsewhere = foreignCgroup(t, `elsewhere-${process.pid}`)
  const { run, ...rest } = await standing(t, treeNamed('half-setsid'))
  moveInto(elsewhere, run.pid)
  assertOver(await run.cancel(), rest, 'manual-cancel')
  assert.ok(isEmpty(elsewhere))
})

// ---- without a keeper -------------------------------------------------------------------------------------------------

describe('bot, zygote and keeper killed together: reaped, nothing stays of', together, () => {
  // Wrappers leave at the end of their input, which there is none of when their bot is dead.
  for (const tree of hostileTrees.filter(({ name }) => !/^(sh|bash|npx)/.test(name))) {
    test(tree.name, options, async (t) => {
      const { next, pid, record, witness } = await crashed(t, { tree, ...inCgroup })
      assertReport(await next.reapOrphans(), { killed: [pid] })
      assertGone(witness)
      assert.equal(existsSync(record.cgroup), false)
    })
  }

  test(
    'one that has cleared its environment and left its session, when nobody else is left',
    options,
    async (t) => {
      const tree = treeNamed('cleared-environment')
      const { next, pid, record, witness } = await crashed(t, { tree, ...inCgroup })
      process.kill(pid, 'SIGKILL')
      await gone(pid)
      assertAlive(witness)
      assertReport(await next.reapOrphans(), { killed: [pid] })
      assertGone(witness)
      assert.equal(existsSync(record.cgroup), false)
    },
  )
})

describe('nobody lives long enough to be looked at, and none has an environment:', {
  skip: unavailable,
}, () => {
  const hydra = treeNamed('hydra with heads that live 500 µs')
  const tree = { ...hydra, command: (path) => ['env', ['-i', ...hydra.command(path).flat()]] }
  /** Only the heads are left. */
  async function heads(t) {
    const left = await crashed(t, { tree, ...inCgroup })
    process.kill(left.pid, 'SIGKILL')
    await gone(left.pid)
    return left
  }
  for (const round of [1, 2, 3]) {
    test(`they are reaped with their cgroup (${round})`, options, async (t) => {
      const { next, pid, record, witness } = await heads(t)
      assertReport(await next.reapOrphans(), { killed: [pid] })
      assertGone(witness)
      assert.equal(existsSync(record.cgroup), false)
    })

    test(`the policy is asked before they are touched (${round})`, options, async (t) => {
      const { next, pid, record, witness } = await heads(t)
      const { killed, skipped } = await next.reapOrphans({ policy: () => 'leave' })
      assert.deepEqual([killed, skipped.map((one) => one.pid)], [[], [pid]])
      assertAlive(witness)
      assertReport(await next.reapOrphans(), { killed: [pid] })
      assert.equal(existsSync(record.cgroup), false)
    })
  }
})

describe('the bot lives, and', together, () => {
  const helpers = {
    'its keeper was killed': ({ keeper }) => [keeper],
    'its keeper and its zygote were killed': ({ keeper, zygote }) => [zygote, keeper],
  }
  for (const [what, victims] of Object.entries(helpers)) {
    test(`${what}: the run is lost, and nothing is left`, options, async (t) => {
      const tree = treeNamed('cleared-environment')
      const { bot, record, runId, witness } = await owned(t, { tree, ...inCgroup })
      const keeper = keeperOf(record)
      const stat = readFileSync(`/proc/${keeper}/stat`, 'utf8')
      const zygote = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
      for (const pid of victims({ keeper, zygote })) process.kill(pid, 'SIGKILL')
      assertOver(await bot.ask('wait', runId), { witness, cgroup: record.cgroup }, 'lost')
    })
  }
})

test('the bot killed alone: its keeper ends the run, and removes the cgroup', options, async (t) => {
  const { bot, record, witness } = await owned(t, inCgroup)
  await bot.kill()
  await witness.gone(5000)
  await until(() => !existsSync(record.cgroup), 'it is removed')
})

test('a kept run is adopted with it', options, async (t) => {
  const { next, runId, record, witness } = await kept(t, inCgroup)
  const run = await next.adopt(runId)
  assertAlive(witness)
  assertOver(await run.cancel(), { witness, cgroup: record.cgroup }, 'manual-cancel')
})

describe('what is left when everybody was killed', together, () => {
  async function leftOver(t) {
    const run = await crashed(t, inCgroup)
    killAll(run.record.cgroup)
    await run.witness.gone(5000)
    assert.ok(existsSync(run.record.cgroup))
    return run
  }

  test('is removed with its entry', options, async (t) => {
    const { next, pid, record } = await leftOver(t)
    assertReport(await next.reapOrphans(), { alreadyDead: [pid] })
    assert.equal(existsSync(record.cgroup), false)
  })

  test('is swept up by the next bot that makes one, and nothing else is', options, async (t) => {
    const foreign = foreignCgroup(t, `spawn-owned-not-${process.pid}`)
    const alive = await owned(t, inCgroup)
    const { record } = await leftOver(t)
    const bot = await startBot(t, freshRegistry())
    await bot.ask('spawn', 'true', [], inCgroup)
    await until(() => !existsSync(record.cgroup), 'it is swept up')
    assert.ok(existsSync(foreign))
    assert.ok(existsSync(alive.record.cgroup))
    assertAlive(alive.witness)
  })
})

// ---- a registry that somebody has written into -------------------------------------------------------------------------

describe('a cgroup that an entry wrongly names is not touched when its run is reaped:', together, () => {
  const ways = {
    'the one in which all bots are': () => ({ cgroup: base }),
    'somebody’s own': (_, { foreign }) => ({ cgroup: foreign }),
    'one with a detour to it': ({ cgroup }, { foreign }) => ({ cgroup: `${cgroup}/../${basename(foreign)}` }),
    'that of another run': (_, { other }) => ({ cgroup: other.record.cgroup }),
    'that of another run, and its keeper': (_, { other }) => ({
      cgroup: other.record.cgroup,
      keeper: other.record.keeper,
    }),
    'its own name somewhere else': ({ cgroup }, { foreign }) => ({ cgroup: join(foreign, basename(cgroup)) }),
    'the name of a keeper that never was': ({ keeper, cgroup }) => ({
      cgroup,
      keeper: { ...keeper, startToken: altered(keeper.startToken, { start: 1 }) },
    }),
  }
  for (const [what, alter] of Object.entries(ways)) {
    test(what, options, async (t) => {
      const foreign = foreignCgroup(t, `somebodys-${process.pid}-${Math.random().toString(36).slice(2)}`)
      const stranger = await bystander(t)
      moveInto(foreign, stranger.pid)
      const other = await owned(t, inCgroup)
      const run = await crashedAs(t, (record) => alter(record, { foreign, other }), inCgroup)
      assertReport(await run.next.reapOrphans(), { killed: [run.pid] })
      // Its tree keeps its cookie.
      assertGone(run.witness)
      assertAlive(stranger.witness)
      assertAlive(other.witness)
      assert.ok(isIn(stranger.pid, foreign))
      assert.equal(await other.bot.ask('state', other.runId), 'running')
    })
  }
})

// ---- which runs have one, and limits -----------------------------------------------------------------------------------

test('without being asked for, and where it is ruled out, none is made', options, async () => {
  for (const more of [{}, { containment: 'auto' }, { containment: 'keeper' }, { limits: {} }]) {
    const { record, cgroup } = await says(more)
    assert.equal(record.containment, 'keeper')
    assert.equal(record.cgroup, undefined)
    assert.equal(cgroup, cgroupOf('self'))
  }
})

test('a bot that is in a cgroup itself makes them below that', options, async (t) => {
  const around = foreignCgroup(t, `around-${process.pid}`)
  const path = freshRegistry()
  const bot = await startBot(t, path)
  moveInto(around, bot.pid)
  const { record, runId, witness } = await owned(t, { path, bot, ...inCgroup })
  assert.equal(dirname(record.cgroup), around)
  assertOver(await bot.ask('cancelRun', runId), { witness, cgroup: record.cgroup }, 'manual-cancel')
  await bot.kill()
})

test('what is no option is refused, and nothing was started', options, () => {
  const next = supervise(freshRegistry())
  for (const [more, code] of [
    [{ containment: 'jail' }, 'ERR_INVALID_ARG_VALUE'],
    [{ containment: 'keeper', limits: { processes: 5 } }, 'ERR_INVALID_ARG_VALUE'],
    [{ limits: 5 }, 'ERR_INVALID_ARG_TYPE'],
    [{ limits: { files: 5 } }, 'ERR_INVALID_ARG_VALUE'],
    [{ limits: { processes: '5' } }, 'ERR_INVALID_ARG_TYPE'],
    [{ limits: { processes: 0 } }, 'ERR_OUT_OF_RANGE'],
    [{ limits: { memoryBytes: 1.5 } }, 'ERR_OUT_OF_RANGE'],
  ]) {
    assert.throws(() => next.spawnOwned('true', more), { code }, JSON.stringify(more))
  }
  assert.deepEqual(next.list(), [])
})

for (const [limits, controller, file, text] of [
  [{ processes: 20 }, 'pids', 'pids.max', '20\n'],
  [{ memoryBytes: 64 << 20 }, 'memory', 'memory.max', `${64 << 20}\n`],
]) {
  const has = controllers.includes(controller)
  test(
    `limits.${Object.keys(limits)}: ${has ? 'set' : 'an error, because the controller is not here'}`,
    options,
    async () => {
      const path = freshRegistry()
      const next = supervise(path)
      if (has) {
        const run = next.spawnOwned('cat', { limits })
        const [{ cgroup, containment }] = next.list()
        assert.equal(containment, 'cgroup')
        assert.equal(readFileSync(join(cgroup, file), 'utf8'), text)
        await run.cancel()
      } else {
        assert.throws(() => next.spawnOwned('true', { limits }), {
          code: 'ERR_OWNED_CGROUP',
          message: new RegExp(`${controller} controller is not available.*Nothing was started`, 's'),
        })
        assert.deepEqual(next.list(), [])
      }
    },
  )
}

test(
  'where cgroups are switched off, who insists is told, and who does not gets a keeper',
  options,
  async (t) => {
    const bot = await startBot(t, freshRegistry(), { env: { SPAWN_OWNED_CGROUP: 'off' } })
    await assert.rejects(bot.ask('spawn', 'true', [], inCgroup), {
      code: 'ERR_OWNED_CGROUP',
      message: /SPAWN_OWNED_CGROUP/,
    })
    assert.deepEqual(await bot.ask('list'), [])
    const { runId } = await bot.ask('spawn', 'true', [], {})
    assert.equal((await bot.ask('wait', runId)).reason, 'exit')
  },
)

test(
  'on a kernel that can only move processes, the command is moved before it starts',
  options,
  async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path, { env: { SPAWN_OWNED_FORCE_FALLBACK: 'clone' } })
    const { pid, record, runId, witness } = await owned(t, { path, bot, ...inCgroup })
    assert.ok(isIn(pid, record.cgroup))
    assertOver(await bot.ask('cancelRun', runId), { witness, cgroup: record.cgroup }, 'manual-cancel')
  },
)
