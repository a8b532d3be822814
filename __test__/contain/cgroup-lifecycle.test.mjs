// A cgroup changes how a tree is contained, but not how a run lives and ends. These tests end runs
// in a cgroup in each possible way.
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { USER_A } from '../support/another-user.mjs'
import {
  assertAlive,
  assertGone,
  entriesOf,
  freshRegistry,
  startBot,
  supervise,
  until,
} from '../support/bots.mjs'
import { assertOver, inCgroup, standing } from '../support/cgroup-runs.mjs'
import { foreignCgroup, moveInto, runCgroups, unavailable } from '../support/cgroups.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { kept, owned } from '../support/orphans.mjs'
import { assert, CLEANED_UP, openWitness, program } from '../support/prelude.mjs'
import { service } from '../support/services.mjs'
import { linuxTests, NO_CGROUPS } from '../support/system.mjs'

const { describe, test } = linuxTests(NO_CGROUPS)

const options = { timeout: 60_000, skip: unavailable }
const asRoot = { ...options, skip: unavailable || (process.getuid?.() !== 0 && 'needs root') }

/** The fields of `/proc/PID/stat` after the name; the first one is the state. */
const statOf = (pid) =>
  readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ')

/**
 * How long a process has run or waited for a processor. Other load does not reduce this value,
 * unlike the CPU time.
 */
function runnableMsOf(pid) {
  const [ran, waited] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')
  return (Number(ran) + Number(waited)) / 1e6
}

const isRemoved = (cgroup) => until(() => !existsSync(cgroup), 'the cgroup is removed')

test('a deadline ends the whole tree and removes its cgroup', options, async (t) => {
  const { run, ...rest } = await standing(t, treeNamed('half-setsid'), { timeoutMs: 1500 })
  assertOver(await run.wait(), rest, 'overall-timeout')
})

test(
  "with onLeaderExit: 'keep', descendants live on in the cgroup, and a cancel ends them",
  options,
  async (t) => {
    const command = (path) => ['sh', ['-c', '"$1" "$2" & read -r _', 'sh', program('stays'), path]]
    const { run, witness, cgroup } = await standing(t, { command, ready: 1 }, { onLeaderExit: 'keep' })
    run.stdin.end()
    await once(run, 'exit')
    assertAlive(witness)
    assert.ok(existsSync(cgroup))
    const { survivors } = await run.cancel()
    assertGone(witness)
    assert.deepEqual([survivors, existsSync(cgroup)], [[], false])
  },
)

test('a keeper sleeps while descendants outlive the root of its cgroup run', options, async (t) => {
  const command = (path) => ['sh', ['-c', '"$1" "$2" & read -r _', 'sh', program('stays'), path]]
  const { run, witness } = await standing(t, { command, ready: 1 }, { onLeaderExit: 'keep' })
  // The root process is alive and the keeper's child: it waits for its input.
  const keeper = Number(statOf(run.pid)[1])
  run.stdin.end()
  await once(run, 'exit')
  // A busy machine can delay the keeper's work after the exit. A keeper that never sleeps fails
  // each time.
  let runnable = Number.POSITIVE_INFINITY
  for (let tries = 0; tries < 5 && runnable > 100; tries++) {
    const before = runnableMsOf(keeper)
    await sleep(300)
    runnable = runnableMsOf(keeper) - before
  }
  assertAlive(witness)
  assert.ok(runnable <= 100, `the keeper was runnable for ${runnable} of 300 ms`)
})

test('a command that cleans up on SIGTERM gets the time to do so', options, async (t) => {
  const command = (path) => [program('cleans-up-on-sigterm'), [path]]
  const { run, witness } = await standing(t, { command, ready: 2 }, { graceMs: 20_000 })
  await run.cancel()
  assertGone(witness)
  assert.equal(witness.count(CLEANED_UP), 2)
})

describe('the bot', { concurrency: 2 }, () => {
  test('exits, and its runs end with their cgroup', options, async (t) => {
    const { bot, record, witness } = await owned(t, inCgroup)
    await bot.ask('installSignalHandlers', {})
    assert.equal(await bot.kill('SIGTERM'), 143)
    assertGone(witness)
    await isRemoved(record.cgroup)
  })

  test('is killed while it starts runs, and neither a process nor a cgroup is left', options, async (t) => {
    const before = new Set(runCgroups())
    const witness = openWitness(t)
    const bot = await startBot(t, freshRegistry())
    const ended = bot.ended
    bot.ask('spawnAndDie', 5, program('stays'), [witness.path], inCgroup)
    assert.equal(await ended, 'SIGKILL')
    witness.release()
    await witness.gone(20_000)
    // Other tests keep their cgroups while they run.
    await until(
      () => runCgroups().every((name) => before.has(name) || isOfAnotherTest(name)),
      'no cgroup of this test is left',
    )
  })

  test('is killed, and the keeper of its kept run enforces the deadline', options, async (t) => {
    const { record, witness } = await kept(t, { timeoutMs: 3000, ...inCgroup })
    await witness.gone(30_000)
    await isRemoved(record.cgroup)
  })

  test('is killed, its kept run ends, and the next bot learns how', options, async (t) => {
    const path = freshRegistry()
    const { record, runId, witness } = await kept(t, { path, timeoutMs: 3000, ...inCgroup })
    await witness.gone(30_000)
    await until(() => entriesOf(path)[0]?.exit, 'the end is recorded')
    const { reason } = await (await supervise(path).adopt(runId)).wait()
    assert.equal(reason, 'overall-timeout')
    await isRemoved(record.cgroup)
  })

  test('that started a service is killed, and the service lives on in its cgroup', options, async (t) => {
    const it = await service(t, inCgroup)
    const bot = await startBot(t, it.path)
    const { runId } = await bot.ask('ensureService', it.options)
    await it.witness.ready(1)
    const [{ cgroup }] = it.here.list({ runId })
    await bot.kill()
    assert.deepEqual((await it.here.reapOrphans()).killed, [])
    assertAlive(it.witness)
    await it.here.stopService(it.options.name)
    assertGone(it.witness)
    assert.equal(existsSync(cgroup), false)
  })
})

/** The cgroup belongs to a keeper that is alive, which is one of another test. */
const isOfAnotherTest = (name) => existsSync(`/proc/${name.split('-')[2]}`)

describe('a member that becomes root, while the bot is not root,', () => {
  /** A setuid program in a folder where a bot without privileges may execute it. */
  function setuid(t) {
    const folder = mkdtempSync(join(tmpdir(), 'setuid-'))
    t.after(() => rmSync(folder, { recursive: true }))
    chmodSync(folder, 0o755)
    const path = join(folder, 'becomes-root')
    copyFileSync(program('becomes-root'), path)
    chmodSync(path, 0o4755)
    return path
  }

  async function started(t, more, prepare = () => {}) {
    const witness = openWitness(t)
    for (const path of [witness.dir, witness.path]) chmodSync(path, 0o777)
    const registry = freshRegistry()
    for (const folder of [dirname(dirname(registry)), dirname(registry)]) {
      mkdirSync(folder, { recursive: true })
      chownSync(folder, USER_A, USER_A)
    }
    const bot = await startBot(t, registry)
    prepare(bot)
    await bot.ask('become', USER_A)
    const { runId } = await bot.ask('spawn', setuid(t), [witness.path], { graceMs: 200, ...more })
    await witness.ready(2)
    return { bot, runId, witness }
  }

  test(
    'is reported as a survivor with the reason, and the cancel does not wait for it forever',
    asRoot,
    async (t) => {
      const { bot, runId, witness } = await started(t, {})
      const { reason, survivors } = await bot.ask('cancelRun', runId)
      assertAlive(witness)
      assert.deepEqual([reason, survivors.map(({ command }) => command)], ['manual-cancel', ['becomes-root']])
      assert.match(survivors[0].why, /permitted|permission|EPERM/i)
      process.kill(survivors[0].pid, 'SIGKILL')
      await witness.gone(10_000)
    },
  )

  test(
    'is ended in a cgroup, because cgroup.kill needs no permission for each process',
    asRoot,
    async (t) => {
      const around = foreignCgroup(t, `delegated-${process.pid}`)
      const prepare = (bot) => {
        for (const file of ['', 'cgroup.procs', 'cgroup.subtree_control'])
          chownSync(join(around, file), USER_A, USER_A)
        moveInto(around, bot.pid)
      }
      const { bot, runId, witness } = await started(t, inCgroup, prepare)
      const { reason, survivors } = await bot.ask('cancelRun', runId)
      assertGone(witness)
      assert.deepEqual([reason, survivors], ['manual-cancel', []])
      await bot.kill()
    },
  )
})
