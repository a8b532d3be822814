// Runs in their own cgroup: each process in the cgroup ends with the run, whatever session or group
// it is in. No other process ends.
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
  statOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { assertOver, inCgroup, standing } from '../support/cgroup-runs.mjs'
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
} from '../support/cgroups.mjs'
import { hostileTrees, treeNamed } from '../support/hostile-trees.mjs'
import { assertReport, crashed, crashedAs, kept, owned } from '../support/orphans.mjs'
import { assert, openWitness, program } from '../support/prelude.mjs'
import { linuxTests, NO_CGROUPS } from '../support/system.mjs'

const { describe, test } = linuxTests(NO_CGROUPS)

const options = { timeout: 30_000, skip: unavailable }
const together = { timeout: 60_000, concurrency: 4, skip: unavailable }

test('the command is in the cgroup of the record, and its keeper and its bot are not', options, async (t) => {
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
})

/** Runs a command that prints the cgroup in which it starts and stays until its input ends. */
async function printCgroup(more) {
  const run = spawnOwned('cat', ['/proc/self/cgroup', '-'], more)
  const [record] = list({ runId: run.runId })
  run.stdin.end()
  const lines = (await run.stdout.toArray()).join('').split('\n')
  return { exit: await run.wait(), record, cgroup: lines.find((line) => line.startsWith('0::')).slice(3) }
}

test(
  'a command starts in its cgroup, and the cgroup is removed after its last process',
  options,
  async () => {
    const { exit, record, cgroup } = await printCgroup(inCgroup)
    assert.equal(basename(cgroup), basename(record.cgroup))
    assert.equal(exit.reason, 'exit')
    assert.equal(existsSync(record.cgroup), false)
  },
)

test('a command that cannot be executed leaves no cgroup', options, async (t) => {
  const bot = await startBot(t, freshRegistry())
  await bot.ask('spawn', 'true', [], inCgroup).then(({ runId }) => bot.ask('wait', runId))
  const before = new Set(runCgroups())
  const failed = spawnOwned('/no/such/program', inCgroup)
  const error = await new Promise((resolve) => failed.on('error', resolve))
  assert.equal(error.code, 'ENOENT')
  // Other tests create cgroups at the same time. The name has the PID of the keeper.
  const isOfAnotherBot = (name) => {
    const keeper = Number(name.split('-')[2])
    return existsSync(`/proc/${keeper}`) && statOf(statOf(keeper).parent).parent !== process.pid
  }
  await until(
    () => runCgroups().every((name) => before.has(name) || isOfAnotherBot(name)),
    'no new cgroup is left',
  )
})

describe('a cancel in a cgroup leaves no process of', together, () => {
  for (const tree of hostileTrees) {
    test(tree.name, options, async (t) => {
      const { run, ...rest } = await standing(t, tree)
      assertOver(await run.cancel(), rest, 'manual-cancel')
    })
  }
})

test(
  'a cancel removes the cgroups that the command created and ends the processes in them',
  options,
  async (t) => {
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
  },
)

describe('a process that another process puts into the cgroup', together, () => {
  const fixtures = { stays: 1, 'ignores-sigterm': 2 }
  for (const [name, processes] of Object.entries(fixtures)) {
    test(`keeps the run open, and is ended after the root exits: ${name}`, options, async (t) => {
      const run = spawnOwned('cat', { graceMs: 250, ...inCgroup })
      const [{ cgroup }] = list({ runId: run.runId })
      const { pid, witness } = await bystander(t, { name, processes })
      for (const moved of [pid, ...childrenOf(pid)]) moveInto(cgroup, moved)
      run.stdin.end()
      assertOver(await run.wait(), { witness, cgroup }, 'exit')
    })
  }

  test('and takes out again is not a member of the run', options, async (t) => {
    const { run, ...rest } = await standing(t, treeNamed('half-setsid'))
    const moved = await bystander(t)
    moveInto(rest.cgroup, moved.pid)
    moveInto(base, moved.pid)
    assertOver(await run.cancel(), rest, 'manual-cancel')
    assertAlive(moved.witness)
  })
})

test('a descendant that moved to another cgroup is ended', options, async (t) => {
  const another = foreignCgroup(t, `another-${process.pid}`)
  const { run, ...rest } = await standing(t, treeNamed('half-setsid'))
  moveInto(another, run.pid)
  assertOver(await run.cancel(), rest, 'manual-cancel')
  assert.ok(isEmpty(another))
})

// ---- without a keeper --------------------------------------------------------------------------

describe(
  'after bot, zygote and keeper were killed together, reapOrphans leaves no process of',
  together,
  () => {
    // The wrappers exit when their input ends, and it ends when their bot dies.
    for (const tree of hostileTrees.filter(({ name }) => !/^(sh|bash|npx)/.test(name))) {
      test(tree.name, options, async (t) => {
        const { next, pid, record, witness } = await crashed(t, { tree, ...inCgroup })
        assertReport(await next.reapOrphans(), { killed: [pid] })
        assertGone(witness)
        assert.equal(existsSync(record.cgroup), false)
      })
    }

    test(
      'a daemon that cleared its environment and left its session, when no other member is left',
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
  },
)

describe('of a run whose members live only 500 µs and have no environment,', {
  skip: unavailable,
}, () => {
  const hydra = treeNamed('hydra with heads that live 500 µs')
  const tree = { ...hydra, command: (path) => ['env', ['-i', ...hydra.command(path).flat()]] }
  /** A crashed run of which only the hydra's heads are left. */
  async function heads(t) {
    const left = await crashed(t, { tree, ...inCgroup })
    process.kill(left.pid, 'SIGKILL')
    await gone(left.pid)
    return left
  }
  for (const round of [1, 2, 3]) {
    test(`reapOrphans ends all members and removes the cgroup (${round})`, options, async (t) => {
      const { next, pid, record, witness } = await heads(t)
      assertReport(await next.reapOrphans(), { killed: [pid] })
      assertGone(witness)
      assert.equal(existsSync(record.cgroup), false)
    })

    test(`reapOrphans signals no member before the policy decides (${round})`, options, async (t) => {
      const { next, pid, record, witness } = await heads(t)
      const { killed, skipped } = await next.reapOrphans({ policy: () => 'leave' })
      assert.deepEqual([killed, skipped.map((one) => one.pid)], [[], [pid]])
      assertAlive(witness)
      assertReport(await next.reapOrphans(), { killed: [pid] })
      assert.equal(existsSync(record.cgroup), false)
    })
  }
})

describe('while the bot lives and', together, () => {
  const helpers = {
    'the keeper was killed': ({ keeper }) => [keeper],
    'the keeper and the zygote were killed': ({ keeper, zygote }) => [zygote, keeper],
  }
  for (const [what, victims] of Object.entries(helpers)) {
    test(`${what}, the run is lost and no process is left`, options, async (t) => {
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

test('after only the bot is killed, the keeper ends the run and removes the cgroup', options, async (t) => {
  const { bot, record, witness } = await owned(t, inCgroup)
  await bot.kill()
  await witness.gone(20_000)
  await until(() => !existsSync(record.cgroup), 'the cgroup is removed')
})

test('a kept run is adopted with its cgroup', options, async (t) => {
  const { next, runId, record, witness } = await kept(t, inCgroup)
  const run = await next.adopt(runId)
  assertAlive(witness)
  assertOver(await run.cancel(), { witness, cgroup: record.cgroup }, 'manual-cancel')
})

describe('a cgroup whose bot, keeper and members were all killed', together, () => {
  async function leftOver(t) {
    const run = await crashed(t, inCgroup)
    killAll(run.record.cgroup)
    await run.witness.gone(20_000)
    assert.ok(existsSync(run.record.cgroup))
    return run
  }

  test('is removed when reapOrphans removes the entry', options, async (t) => {
    const { next, pid, record } = await leftOver(t)
    assertReport(await next.reapOrphans(), { alreadyDead: [pid] })
    assert.equal(existsSync(record.cgroup), false)
  })

  test('is removed by the next bot that creates a cgroup, which removes no other', options, async (t) => {
    const foreign = foreignCgroup(t, `spawn-owned-not-${process.pid}`)
    const alive = await owned(t, inCgroup)
    const { record } = await leftOver(t)
    const bot = await startBot(t, freshRegistry())
    await bot.ask('spawn', 'true', [], inCgroup)
    await until(() => !existsSync(record.cgroup), 'the cgroup is removed')
    assert.ok(existsSync(foreign))
    assert.ok(existsSync(alive.record.cgroup))
    assertAlive(alive.witness)
  })
})

// ---- a registry that was tampered with ---------------------------------------------------------

describe('reapOrphans ends no process in a cgroup that an entry wrongly names:', together, () => {
  const ways = {
    'the cgroup of all bots': () => ({ cgroup: base }),
    'the cgroup of another program': (_, { foreign }) => ({ cgroup: foreign }),
    'a path with `..` to the cgroup of another program': ({ cgroup }, { foreign }) => ({
      cgroup: `${cgroup}/../${basename(foreign)}`,
    }),
    'the cgroup of another run': (_, { other }) => ({ cgroup: other.record.cgroup }),
    'the cgroup and the keeper of another run': (_, { other }) => ({
      cgroup: other.record.cgroup,
      keeper: other.record.keeper,
    }),
    'its own name below the cgroup of another program': ({ cgroup }, { foreign }) => ({
      cgroup: join(foreign, basename(cgroup)),
    }),
    'the name of a keeper that never existed': ({ keeper, cgroup }) => ({
      cgroup,
      keeper: { ...keeper, startToken: altered(keeper.startToken, { start: 1 }) },
    }),
  }
  for (const [what, alter] of Object.entries(ways)) {
    test(what, options, async (t) => {
      const foreign = foreignCgroup(t, `foreign-${process.pid}-${Object.keys(ways).indexOf(what)}`)
      const outsider = await bystander(t)
      moveInto(foreign, outsider.pid)
      const other = await owned(t, inCgroup)
      const run = await crashedAs(t, (record) => alter(record, { foreign, other }), inCgroup)
      assertReport(await run.next.reapOrphans(), { killed: [run.pid] })
      // reapOrphans finds the members by their cookie.
      assertGone(run.witness)
      assertAlive(outsider.witness)
      assertAlive(other.witness)
      assert.ok(isIn(outsider.pid, foreign))
      assert.equal(await other.bot.ask('state', other.runId), 'running')
    })
  }
})

// ---- which runs get a cgroup, and limits -------------------------------------------------------

test('a run gets no cgroup unless it asks for one', options, async () => {
  for (const more of [{}, { containment: 'auto' }, { containment: 'keeper' }, { limits: {} }]) {
    const { record, cgroup } = await printCgroup(more)
    assert.equal(record.containment, 'keeper')
    assert.equal(record.cgroup, undefined)
    assert.equal(cgroup, cgroupOf('self'))
  }
})

test('a bot that is in a cgroup creates the cgroups of its runs below it', options, async (t) => {
  const around = foreignCgroup(t, `around-${process.pid}`)
  const path = freshRegistry()
  const bot = await startBot(t, path)
  moveInto(around, bot.pid)
  const { record, runId, witness } = await owned(t, { path, bot, ...inCgroup })
  assert.equal(dirname(record.cgroup), around)
  assertOver(await bot.ask('cancelRun', runId), { witness, cgroup: record.cgroup }, 'manual-cancel')
  await bot.kill()
})

test('spawnOwned refuses wrong options and starts nothing', options, () => {
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
    `limits.${Object.keys(limits)}: ${has ? 'the kernel gets the limit' : 'spawnOwned throws without the controller'}`,
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
  'with cgroups switched off, a run that requires one fails and other runs get a keeper',
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

test('on a kernel without clone into a cgroup, the command is moved before it starts', options, async (t) => {
  const path = freshRegistry()
  const bot = await startBot(t, path, { env: { SPAWN_OWNED_FORCE_FALLBACK: 'clone' } })
  const { pid, record, runId, witness } = await owned(t, { path, bot, ...inCgroup })
  assert.ok(isIn(pid, record.cgroup))
  assertOver(await bot.ask('cancelRun', runId), { witness, cgroup: record.cgroup }, 'manual-cancel')
})
