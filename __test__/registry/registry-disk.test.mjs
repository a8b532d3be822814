// A full or read-only disk: a run that cannot be recorded is not started, and live runs end as
// usual. The tests need root to mount their own disk.
import { closeSync, existsSync, openSync, readdirSync, readlinkSync } from 'node:fs'
import { isSameProcess } from 'spawn-owned'
import { abandoned, recordOf } from '../support/abandoned.mjs'
import { startBot } from '../support/obedient-bot.mjs'
import { assert, openWitness, program } from '../support/prelude.mjs'
import { openRegistry, until } from '../support/registry.mjs'
import { mountSmallDisk } from '../support/small-disk.mjs'
import { linuxTests, NO_MOUNTS } from '../support/system.mjs'

const { describe, test } = linuxTests(NO_MOUNTS)

const limit = { timeout: 120_000 }
const code = 'ERR_OWNED_REGISTRY_UNWRITABLE'

/**
 * A registry on its own disk, and a function that starts a bot on it. The disk is unmounted when it
 * is no longer used.
 */
function onSmallDisk(t) {
  const registry = openRegistry(t)
  const disk = mountSmallDisk(t, registry.folder)
  if (!disk) return {}
  t.after(() => disk.release())
  const newBot = () => startBot(t, { options: { registryPath: registry.path } })
  return { registry, disk, newBot }
}

/** Makes `bot` start a run that stays. */
async function spawnStanding(t, bot) {
  const witness = openWitness(t)
  const run = await bot.ask('spawn', program('stays'), [witness.path])
  await witness.ready(1)
  return { ...run, witness }
}

/** Makes `bot` try to start a run and asserts that it fails and starts nothing. */
async function startsNothing(t, bot) {
  const witness = openWitness(t)
  await assert.rejects(bot.ask('spawnHolding', witness.path, program('stays'), [witness.path]), { code })
  witness.release()
  await witness.gone(20_000)
}

/** Opens the files that a process has open in a folder. */
function openFiles(pid, folder) {
  const fds = readdirSync(`/proc/${pid}/fd`).map((fd) => `/proc/${pid}/fd/${fd}`)
  return fds.filter((fd) => readlinkSync(fd).startsWith(folder)).map((fd) => openSync(fd, 'r'))
}

describe('a full disk', limit, () => {
  test('prevents the first run before it starts, and allows it when there is space', async (t) => {
    const { registry, disk, newBot } = onSmallDisk(t)
    if (!disk) return
    disk.fill()
    const bot = newBot()
    await startsNothing(t, bot)
    const left = await abandoned(t)
    await assert.rejects(bot.ask('registerProcess', { pid: left.pid }), { code })
    assert.equal(left.witness.isGone(), false)
    assert.deepEqual(await bot.ask('list'), [])
    disk.free()
    const { runId, witness } = await spawnStanding(t, bot)
    await registry.has(runId, 'running')
    assert.equal(registry.entries().length, 1)
    await bot.ask('cancel', runId)
    assert.equal(witness.isGone(), true)
    await registry.lacks(runId)
    await bot.dismiss()
    disk.unmount()
  })

  test('prevents the next run, and the other runs end as usual', async (t) => {
    const { registry, disk, newBot } = onSmallDisk(t)
    if (!disk) return
    const bot = newBot()
    await bot.ask('listen')
    const live = [await spawnStanding(t, bot)]
    await registry.has(live[0].runId, 'running')
    await registry.settled()
    disk.fill()
    // The rest of the last block can hold some more lines.
    let refused
    while (!refused) {
      try {
        live.push(await spawnStanding(t, bot))
      } catch (error) {
        refused = error
      }
      assert.ok(live.length < 30)
    }
    assert.equal(refused.code, code)
    assert.match(refused.message, /nothing was started/)
    await startsNothing(t, bot)
    const listed = await bot.ask('list')
    assert.deepEqual(listed.map(({ runId }) => runId).sort(), live.map(({ runId }) => runId).sort())
    const hasWarned = async () => (await bot.ask('events')).some(({ kind }) => kind === 'unwritable')
    assert.equal(registry.entries().length >= 1, true, 'the file is unchanged')
    for (const { runId, witness } of live) {
      const { outcome } = await bot.ask('cancel', runId)
      assert.deepEqual([outcome, witness.isGone()], ['cancelled', true])
    }
    assert.deepEqual(await bot.ask('list'), [])
    registry.read()
    while (!(await hasWarned()));
    disk.free()
    await until(() => registry.entries().length === 0, 'the file is up to date')
    await bot.dismiss()
    disk.unmount()
  })

  test('does not prevent a keeper from ending the run of a killed bot and reporting the end later', async (t) => {
    const { registry, disk, newBot } = onSmallDisk(t)
    if (!disk) return
    const bot = newBot()
    const { runId, pid, witness } = await spawnStanding(t, bot)
    const { keeper } = await registry.has(runId, 'running')
    t.after(() => isSameProcess(keeper.startToken) && process.kill(Number.parseInt(keeper.startToken, 10)))
    await registry.settled()
    // The bot has deleted files open there. Its death would free space for a line, so keep them
    // open.
    const held = openFiles(bot.pid, registry.folder)
    disk.fill()
    await bot.kill('SIGKILL')
    await witness.gone(20_000)
    assert.equal(registry.entry(runId).state, 'running', 'the end cannot be recorded')
    assert.equal(isSameProcess(keeper.startToken), true)
    for (const fd of held) closeSync(fd)
    disk.free()
    const next = newBot()
    const report = await next.ask('reapOrphans')
    assert.deepEqual([...report.killed, ...report.alreadyDead], [pid])
    await until(() => !isSameProcess(keeper.startToken), 'the keeper has exited')
    await registry.lacks(runId)
    await next.dismiss()
    disk.unmount()
  })

  test('prevents a reaper from signalling processes that it cannot claim first', async (t) => {
    const { registry, disk, newBot } = onSmallDisk(t)
    if (!disk) return
    const left = await abandoned(t)
    registry.write(JSON.stringify({ version: 1, entries: [await recordOf(left)] }))
    disk.fill()
    const bot = newBot()
    await assert.rejects(bot.ask('reapOrphans'), { code })
    assert.equal(left.witness.isGone(), false)
    disk.free()
    assert.deepEqual((await bot.ask('reapOrphans')).killed, [left.pid])
    assert.equal(left.witness.isGone(), true)
    await until(() => registry.entries().length === 0, 'the entry is removed')
    await bot.dismiss()
    disk.unmount()
  })
})

describe('a read-only disk', limit, () => {
  test('prevents each run before it starts', async (t) => {
    const { registry, disk, newBot } = onSmallDisk(t)
    if (!disk) return
    disk.makeReadOnly()
    const bot = newBot()
    await startsNothing(t, bot)
    const left = await abandoned(t)
    await assert.rejects(bot.ask('registerProcess', { pid: left.pid }), { code })
    assert.deepEqual(await bot.ask('list'), [])
    await bot.dismiss()
    assert.equal(existsSync(registry.path), false)
    disk.unmount()
  })

  test('can be read, and no process is signalled that cannot be claimed first', async (t) => {
    const { registry, disk, newBot } = onSmallDisk(t)
    if (!disk) return
    const left = await abandoned(t)
    registry.write(JSON.stringify({ version: 1, entries: [await recordOf(left)] }))
    disk.makeReadOnly()
    const bot = newBot()
    assert.deepEqual(
      (await bot.ask('list')).map(({ pid }) => pid),
      [left.pid],
    )
    const { decisions } = await bot.ask('reapOrphans', { dryRun: true })
    assert.deepEqual(
      decisions.map(({ decision, outcome }) => [decision, outcome]),
      [['end', 'planned']],
    )
    await assert.rejects(bot.ask('reapOrphans'), { code })
    assert.equal(left.witness.isGone(), false)
    await bot.dismiss()
    disk.unmount()
  })
})
