// Files of other programs are read, and their processes are reaped as safely as the files allow.
// They identify a process only by its PID and its start time, so it is ended only if both match.
import { abandoned, gone } from '../support/abandoned.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { openRegistry, until } from '../support/registry.mjs'

const limit = { timeout: 120_000 }
const iso = (ms) => new Date(ms).toISOString()

/**
 * Each function returns the file of that program for processes `{pid, startedAt}`; `owner` is the
 * PID of the bot that started them.
 */
const programs = {
  Papercup: (processes, owner) => ({
    entries: processes.map(({ pid, startedAt }) => ({
      pid,
      startedAt,
      sessionId: 'chat-7',
      botPid: owner,
      commandPreview: 'agent -p',
    })),
  }),
  'the loopwork detector': (processes) => ({
    pids: processes.map(({ pid, startedAt }) => ({
      pid,
      command: 'agent',
      spawnedAt: iso(startedAt),
      cwd: '/tmp',
    })),
  }),
  'the loopwork manager': (processes, owner) => ({
    version: 1,
    parentPid: owner,
    lastUpdated: Date.now(),
    processes: processes.map(({ pid, startedAt }) => ({
      pid,
      command: 'agent',
      args: ['-p'],
      startTime: startedAt,
      status: 'running',
      parentPid: owner,
    })),
  }),
  'claude-mem': (processes) => ({
    processes: Object.fromEntries(
      processes.map(({ pid, startedAt }) => [
        `sdk:7:${pid}`,
        { pid, type: 'sdk', sessionId: 7, startedAt: iso(startedAt), pgid: pid },
      ]),
    ),
  }),
}

for (const [name, write] of Object.entries(programs)) {
  describe(`a file of ${name}`, limit, () => {
    test('is read, and a process whose start time matches is ended', async (t) => {
      const registry = openRegistry(t)
      const [left, owner] = [await abandoned(t), await gone()]
      registry.write(JSON.stringify(write([left], owner.pid)))
      const { list, reapOrphans } = registry.supervise()
      const [listed] = list()
      assert.deepEqual([listed.pid, listed.startedAt, listed.startToken], [left.pid, left.startedAt, null])
      const report = await reapOrphans()
      assert.equal(left.witness.isGone(), true)
      assert.deepEqual([report.killed, report.skipped, report.failed], [[left.pid], [], []])
      assert.deepEqual(list(), [])
      await registry.settled()
      assert.deepEqual(registry.read(), { version: 1, entries: [] })
    })

    test('does not end a process whose start time does not match', async (t) => {
      const registry = openRegistry(t)
      const [younger, older, owner] = [await abandoned(t), await abandoned(t), await gone()]
      // One process reuses the PID of a process that started long ago; the other is older than its
      // entry.
      younger.startedAt -= 60_000
      older.startedAt += 60_000
      registry.write(JSON.stringify(write([younger, older], owner.pid)))
      const { reapOrphans } = registry.supervise()
      const report = await reapOrphans()
      assert.deepEqual([younger.witness.isGone(), older.witness.isGone()], [false, false])
      assert.deepEqual([report.killed, report.alreadyDead, report.failed], [[], [], []])
      const pids = report.skipped.map(({ pid }) => pid).sort()
      assert.deepEqual(pids, [younger.pid, older.pid].sort())
      for (const { reason } of report.skipped) assert.ok(reason.length > 10, reason)
    })

    test('loses its entries of dead processes', async (t) => {
      const registry = openRegistry(t)
      const [dead, owner] = [await gone(), await gone()]
      registry.write(JSON.stringify(write([{ pid: dead.pid, startedAt: Date.now() }], owner.pid)))
      const { reapOrphans } = registry.supervise()
      const report = await reapOrphans()
      assert.deepEqual([report.killed, report.alreadyDead, report.skipped], [[], [dead.pid], []])
      await registry.settled()
      assert.deepEqual(registry.entries(), [])
    })
  })
}

describe('an old entry', limit, () => {
  const papercup = programs.Papercup

  test('that is only a PID identifies no process', async (t) => {
    const registry = openRegistry(t)
    const left = await abandoned(t)
    registry.write(JSON.stringify({ pids: [left.pid] }))
    const { list, reapOrphans } = registry.supervise()
    assert.deepEqual(
      list().map(({ pid }) => pid),
      [left.pid],
    )
    const report = await reapOrphans()
    assert.equal(left.witness.isGone(), false)
    assert.deepEqual([report.killed, report.alreadyDead, report.failed], [[], [], []])
    assert.deepEqual(
      report.skipped.map(({ pid }) => pid),
      [left.pid],
    )
  })

  test('of a group leader ends the whole group', async (t) => {
    const registry = openRegistry(t)
    const tree = await abandoned(t, { fixture: 'tree-of-100', ready: 100 })
    const owner = await gone()
    registry.write(JSON.stringify(papercup([tree], owner.pid)))
    const { killed } = await registry.supervise().reapOrphans()
    assert.equal(tree.witness.isGone(), true, tree.witness.holders())
    assert.deepEqual(killed, [tree.pid])
  })

  test('of a process in another group ends only that process', async (t) => {
    const registry = openRegistry(t)
    // Both processes are in the group of this test.
    const [left, bystander] = [
      await abandoned(t, { detached: false }),
      await abandoned(t, { detached: false }),
    ]
    const owner = await gone()
    registry.write(JSON.stringify(programs['claude-mem']([left], owner.pid)))
    const { killed } = await registry.supervise().reapOrphans()
    assert.deepEqual(killed, [left.pid])
    assert.deepEqual([left.witness.isGone(), bystander.witness.isGone()], [true, false])
  })

  test('whose bot is alive is left alone', async (t) => {
    const registry = openRegistry(t)
    const [bot, left] = [await abandoned(t), await abandoned(t)]
    registry.write(JSON.stringify(papercup([left], bot.pid)))
    const { decisions, ...lists } = await registry.supervise().reapOrphans()
    assert.equal(left.witness.isGone(), false)
    assert.deepEqual(
      decisions.map(({ decision, outcome }) => [decision, outcome]),
      [['leave', 'left']],
    )
    assert.deepEqual(Object.values(lists), [[], [], [], [], [], []])
  })

  test('whose bot’s PID is reused by another process is reaped', async (t) => {
    const registry = openRegistry(t)
    const left = await abandoned(t)
    // The start time still matches the entry, and the other process is too young to have started
    // this one.
    left.startedAt -= 1000
    await until(() => Date.now() > left.startedAt + 2200, 'the other process is young enough')
    const otherProcess = await abandoned(t)
    registry.write(JSON.stringify(papercup([left], otherProcess.pid)))
    const { killed } = await registry.supervise().reapOrphans()
    assert.deepEqual(killed, [left.pid])
    assert.deepEqual([left.witness.isGone(), otherProcess.witness.isGone()], [true, false])
  })

  test('stays in the file, in the current format, until a reaper decides about it', async (t) => {
    const registry = openRegistry(t)
    const [left, owner] = [await abandoned(t), await gone()]
    registry.write(JSON.stringify(papercup([left], owner.pid)))
    const { spawnOwned, reapOrphans } = registry.supervise()
    const run = spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
    await registry.has(run.runId)
    assert.equal(registry.read().version, 1)
    const old = registry.entries().find(({ pid }) => pid === left.pid)
    assert.deepEqual(
      [old.startedAt, old.sessionId, old.botPid, old.commandPreview, old.startToken],
      [left.startedAt, 'chat-7', owner.pid, 'agent -p', null],
    )
    assert.deepEqual((await reapOrphans()).killed, [left.pid])
    await run.cancel()
  })

  test('that is malformed is ignored, and the other entries count', async (t) => {
    const registry = openRegistry(t)
    const [left, owner] = [await abandoned(t), await gone()]
    const { entries } = papercup([left], owner.pid)
    const nonsense = [
      null,
      7.5,
      'text',
      [],
      {},
      { ...entries[0], pid: -1 },
      { ...entries[0], pid: 0 },
      { ...entries[0], pid: `${left.pid}` },
      { ...entries[0], startedAt: 'yesterday' },
      { ...entries[0], botPid: -7 },
    ]
    registry.write(JSON.stringify({ entries: [...nonsense, ...entries, ...nonsense] }))
    const supervisor = registry.supervise()
    supervisor.on('event', () => {})
    assert.deepEqual(
      supervisor.list().map(({ pid }) => pid),
      [left.pid],
    )
    assert.deepEqual((await supervisor.reapOrphans()).killed, [left.pid])
    assert.equal(left.witness.isGone(), true)
    await registry.settled()
    assert.equal(registry.setAside().length, 1)
  })

  test('that names PID 1, a low PID or this process ends no process', async (t) => {
    const registry = openRegistry(t)
    const owner = await gone()
    const pids = [1, 2, 99, process.pid, process.ppid].filter((pid) => pid > 0)
    const started = Math.round(performance.timeOrigin)
    registry.write(
      JSON.stringify(
        papercup(
          pids.map((pid) => ({ pid, startedAt: started })),
          owner.pid,
        ),
      ),
    )
    const { killed, failed, skipped } = await registry.supervise().reapOrphans()
    assert.deepEqual([killed, failed], [[], []])
    assert.ok(skipped.some(({ pid }) => pid === process.pid))
  })
})
