// A disk that is full, or read-only: nothing is started that could not be written down, and what runs already is ended as
// ever. Needs root for a disk of its own.
import assert from 'node:assert/strict'
import { closeSync, existsSync, openSync, readdirSync, readlinkSync } from 'node:fs'
import { isSameProcess } from 'spawn-owned'
import { abandoned, recordOf } from './support/abandoned.mjs'
import { program } from './support/fixtures.mjs'
import { startBot } from './support/obedient-bot.mjs'
import { openRegistry, until } from './support/registry.mjs'
import { mountSmallDisk } from './support/small-disk.mjs'
import { linuxTests, NO_MOUNTS } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const { describe, test } = linuxTests(NO_MOUNTS)

const limit = { timeout: 120_000 }
const code = 'ERR_OWNED_REGISTRY_UNWRITABLE'

/** A registry on a disk of its own, and a bot that uses it. The disk goes when nobody uses it any more. */
function onSmallDisk(t) {
  const registry = openRegistry(t)
  const disk = mountSmallDisk(t, registry.folder)
  if (!disk) return {}
  t.after(() => disk.release())
  const newBot = () => startBot(t, { options: { registryPath: registry.path } })
  return { registry, disk, newBot }
}

/** Has `bot` start a run that stays. */
async function spawnStanding(t, bot) {
  const witness = openWitness(t)
  const run = await bot.ask('spawn', program('stays'), [witness.path])
  await witness.ready(1)
  return { ...run, witness }
}

/** Has `bot` try to start a run, which must fail, and shows that nothing was started. */
async function startsNothing(t, bot) {
  const witness = openWitness(t)
  await assert.rejects(bot.ask('spawnHolding', witness.path, program('stays'), [witness.path]), { code })
  witness.release()
  await witness.gone(20_000)
}

/** Descriptors of our own for what a process has open in a folder. */
function openFiles(pid, folder) {
  const fds = readdirSync(`/proc/${pid}/fd`).map((fd) => `/proc/${pid}/fd/${fd}`)
  return fds.filter((fd) => readlinkSync(fd).startsWith(folder)).map((fd) => openSync(fd, 'r'))
}

describe('a full disk', limit, () => {
  test('refuses the first run before it is started, and takes it when there is space', async (t) => {
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

  test('refuses the next run, and the others end as ever', async (t) => {
    const { registry, disk, newBot } = onSmallDisk(t)
    if (!disk) return
    const bot = newBot()
    await bot.ask('listen')
    const live = [await spawnStanding(t, bot)]
    await registry.has(live[0].runId, 'running')
    await registry.settled()
    disk.fill()
    // What is left of the last block may hold some more lines.
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
    const told = async () => (await bot.ask('events')).some(({ kind }) => kind === 'unwritable')
    assert.equal(registry.entries().length >= 1, true, 'the file is as it was')
    for (const { runId, witness } of live) {
      const { outcome } = await bot.ask('cancel', runId)
      assert.deepEqual([outcome, witness.isGone()], ['cancelled', true])
    }
    assert.deepEqual(await bot.ask('list'), [])
    registry.read()
    while (!(await told()));
    disk.free()
    await until(() => registry.entries().length === 0, 'the file has caught up')
    await bot.dismiss()
    disk.unmount()
  })

  test('keeps no run of a killed bot alive, and its keeper remembers how it ended until it is asked', async (t) => {
    const { registry, disk, newBot } = onSmallDisk(t)
    if (!disk) return
    const bot = newBot()
    const { runId, pid, witness } = await spawnStanding(t, bot)
    const { keeper } = await registry.has(runId, 'running')
    t.after(() => isSameProcess(keeper.startToken) && process.kill(Number.parseInt(keeper.startToken, 10)))
    await registry.settled()
    // What the bot has open there is deleted already; its death would make room for a line.
    const held = openFiles(bot.pid, registry.folder)
    disk.fill()
    await bot.kill('SIGKILL')
    await witness.gone(20_000)
    assert.equal(registry.entry(runId).state, 'running', 'it cannot be written down')
    assert.equal(isSameProcess(keeper.startToken), true)
    for (const fd of held) closeSync(fd)
    disk.free()
    const next = newBot()
    const report = await next.ask('reapOrphans')
    assert.deepEqual([...report.killed, ...report.alreadyDead], [pid])
    await until(() => !isSameProcess(keeper.startToken), 'the keeper is gone')
    await registry.lacks(runId)
    await next.dismiss()
    disk.unmount()
  })

  test('lets no reaper signal anything that it cannot claim first', async (t) => {
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
    await until(() => registry.entries().length === 0, 'the entry is gone')
    await bot.dismiss()
    disk.unmount()
  })
})

describe('a read-only disk', limit, () => {
  test('refuses every run before it is started', async (t) => {
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

  test('can be read, and nothing is signalled that cannot be claimed first', async (t) => {
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
