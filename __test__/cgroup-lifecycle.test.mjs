// A cgroup changes what holds a tree together, and nothing about how it lives and ends: every end that a run can have, in one.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { chmodSync, chownSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { NOBODY } from './support/another-user.mjs'
import {
  assertAlive,
  assertGone,
  entriesOf,
  freshRegistry,
  startBot,
  supervise,
  until,
} from './support/bots.mjs'
import { assertOver, inCgroup, standing } from './support/cgroup-runs.mjs'
import { foreignCgroup, moveInto, runCgroups, unavailable } from './support/cgroups.mjs'
import { program } from './support/fixtures.mjs'
import { treeNamed } from './support/hostile-trees.mjs'
import { kept, owned } from './support/orphans.mjs'
import { service } from './support/services.mjs'
import { linuxTests, NO_CGROUPS } from './support/system.mjs'
import { CLEANED_UP, openWitness } from './support/witness.mjs'

const { describe, test } = linuxTests(NO_CGROUPS)

const options = { timeout: 60_000, skip: unavailable }
const asRoot = { ...options, skip: unavailable || (process.getuid?.() !== 0 && 'needs root') }

const isRemoved = (cgroup) => until(() => !existsSync(cgroup), 'its cgroup is removed')

test('a deadline ends the whole tree, and its cgroup', options, async (t) => {
  const { run, ...rest } = await standing(t, treeNamed('half-setsid'), { timeoutMs: 1500 })
  assertOver(await run.wait(), rest, 'overall-timeout')
})

test("onLeaderExit: 'keep': descendants live on in it, and a cancel ends them", options, async (t) => {
  const command = (path) => ['sh', ['-c', '"$1" "$2" & read -r _', 'sh', program('stays'), path]]
  const { run, witness, cgroup } = await standing(t, { command, ready: 1 }, { onLeaderExit: 'keep' })
  run.stdin.end()
  await once(run, 'exit')
  assertAlive(witness)
  assert.ok(existsSync(cgroup))
  const { survivors } = await run.cancel()
  assertGone(witness)
  assert.deepEqual([survivors, existsSync(cgroup)], [[], false])
})

test('a command that cleans up when it is asked is given the time', options, async (t) => {
  const command = (path) => [program('cleans-up-on-sigterm'), [path]]
  const { run, witness } = await standing(t, { command, ready: 2 }, { graceMs: 20_000 })
  await run.cancel()
  assertGone(witness)
  assert.equal(witness.count(CLEANED_UP), 2)
})

describe('the bot', { concurrency: 2 }, () => {
  test('exits: everything ends, and the cgroup goes', options, async (t) => {
    const { bot, record, witness } = await owned(t, inCgroup)
    await bot.ask('installSignalHandlers', {})
    assert.equal(await bot.kill('SIGTERM'), 143)
    assertGone(witness)
    await isRemoved(record.cgroup)
  })

  test('is killed while it starts runs: nothing is left of them, and no cgroup', options, async (t) => {
    const before = new Set(runCgroups())
    const witness = openWitness(t)
    const bot = await startBot(t, freshRegistry())
    const ended = bot.ended
    bot.ask('spawnAndDie', 5, program('stays'), [witness.path], inCgroup)
    assert.equal(await ended, 'SIGKILL')
    witness.release()
    await witness.gone(20_000)
    // Others have theirs for as long as their tests take.
    await until(() => runCgroups().every((name) => before.has(name) || isOthers(name)), 'none is left')
  })

  test('is killed, and its kept run has a deadline: its keeper keeps it', options, async (t) => {
    const { record, witness } = await kept(t, { timeoutMs: 3000, ...inCgroup })
    await witness.gone(30_000)
    await isRemoved(record.cgroup)
  })

  test('is killed, and its kept run ends meanwhile: the next one is told how', options, async (t) => {
    const path = freshRegistry()
    const { record, runId, witness } = await kept(t, { path, timeoutMs: 3000, ...inCgroup })
    await witness.gone(30_000)
    await until(() => entriesOf(path)[0]?.exit, 'its end was recorded')
    const { reason } = await (await supervise(path).adopt(runId)).wait()
    assert.equal(reason, 'overall-timeout')
    await isRemoved(record.cgroup)
  })

  test('that has started a service is killed: the service lives on in it', options, async (t) => {
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

/** A cgroup of a keeper that is alive: whoever tests beside us. */
const isOthers = (name) => existsSync(`/proc/${name.split('-')[2]}`)

describe('a member becomes root, which the bot is not:', () => {
  /** A setuid program in a place where a bot without privileges may execute it. */
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
      chownSync(folder, NOBODY, NOBODY)
    }
    const bot = await startBot(t, registry)
    prepare(bot)
    await bot.ask('become', NOBODY)
    const { runId } = await bot.ask('spawn', setuid(t), [witness.path], { graceMs: 200, ...more })
    await witness.ready(2)
    return { bot, runId, witness }
  }

  test('it is told as a survivor, with the reason, and not waited for for ever', asRoot, async (t) => {
    const { bot, runId, witness } = await started(t, {})
    const { reason, survivors } = await bot.ask('cancelRun', runId)
    assertAlive(witness)
    assert.deepEqual([reason, survivors.map(({ command }) => command)], ['manual-cancel', ['becomes-root']])
    assert.match(survivors[0].why, /permitted|permission|EPERM/i)
    process.kill(survivors[0].pid, 'SIGKILL')
    await witness.gone(10_000)
  })

  test('in a cgroup it is ended all the same: the kernel asks nobody', asRoot, async (t) => {
    const around = foreignCgroup(t, `delegated-${process.pid}`)
    const prepare = (bot) => {
      for (const file of ['', 'cgroup.procs', 'cgroup.subtree_control'])
        chownSync(join(around, file), NOBODY, NOBODY)
      moveInto(around, bot.pid)
    }
    const { bot, runId, witness } = await started(t, inCgroup, prepare)
    const { reason, survivors } = await bot.ask('cancelRun', runId)
    assertGone(witness)
    assert.deepEqual([reason, survivors], ['manual-cancel', []])
    await bot.kill()
  })
})
