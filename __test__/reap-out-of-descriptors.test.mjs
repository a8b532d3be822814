// A bot that has hardly a descriptor to spare cannot look at everything. What it could not see is not dead: it says nothing that
// is untrue, drops nothing, and does its work when it can. (A run without a keeper is in reap-at-once.test.mjs.)
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import {
  assertAlive,
  assertGone,
  entriesOf,
  fileHas,
  freshRegistry,
  startBot,
  until,
} from './support/bots.mjs'
import { script } from './support/fixtures.mjs'
import { kept, owned } from './support/orphans.mjs'
import { NO_DESCRIPTOR_LIMIT, posixTests } from './support/system.mjs'

const { describe, test } = posixTests(NO_DESCRIPTOR_LIMIT)

const options = { timeout: 120_000 }
/** Most of their time they wait for a descriptor that does not come. */
const together = { timeout: 600_000, concurrency: 6 }

/** Enough for a bot to start with, and few enough to be taken in no time. */
const within = ['sh', '-c', 'ulimit -n 256; exec "$@"', 'sh']
/** As many as it takes to look at a process, to read the registry, and to talk to a keeper, and some more. */
const MOST = 12

/** A bot with few descriptors that has done everything once, so that nothing is opened for the first time later. */
async function shortOfDescriptors(t, path) {
  const bot = await startBot(t, path, { within })
  await bot.ask('reap')
  const { runId } = await bot.ask('spawn', 'true', [])
  await bot.ask('wait', runId)
  return bot
}

/** What it says when only so many are free; the code of an error, if it says nothing. */
const withOnly = (free, bot, ...order) =>
  bot.ask('withDescriptors', free, ...order).catch(({ code, message }) => ({ code, message }))

const ids = (records) => records.map(({ runId }) => runId)

describe('with few descriptors', together, () => {
  test('a kept run is ended, or is there as before, and is ended later', options, async (t) => {
    const path = freshRegistry()
    const next = await shortOfDescriptors(t, path)
    const { pid, runId, witness } = await kept(t, { path })
    let ended = false
    let refusals = 0
    for (let free = 0; free <= MOST && !ended; free++) {
      const report = await withOnly(free, next, 'reap')
      const told = `with ${free}: ${JSON.stringify(report)}`
      ended = report.killed?.includes(pid) ?? false
      assert.equal(witness.isGone(), ended, told)
      if (ended) continue
      refusals++
      assert.deepEqual([report.alreadyDead ?? [], report.killed ?? []], [[], []], told)
      assert.deepEqual(ids(await next.ask('list')), [runId], told)
    }
    assert.ok(refusals > 0, 'it was never short of any')
    const { killed, alreadyDead } = await next.ask('reap')
    assert.deepEqual([killed, alreadyDead], [ended ? [] : [pid], []])
    assertGone(witness)
    await fileHas(path, 0)
  })

  test('the run of a live bot stays its own, and in the file', options, async (t) => {
    const path = freshRegistry()
    const next = await shortOfDescriptors(t, path)
    const { bot, pid, runId, witness } = await owned(t, { path })
    await fileHas(path, 1)
    for (let free = 0; free <= MOST; free++) {
      const report = await withOnly(free, next, 'reap')
      const told = `with ${free}: ${JSON.stringify(report)}`
      for (const list of ['killed', 'alreadyDead', 'adopted', 'failed'])
        assert.deepEqual(report[list] ?? [], [], told)
      assertAlive(witness)
      assert.deepEqual(ids(await next.ask('list')), [runId], told)
    }
    // Once more written by both.
    for (const it of [next, bot]) {
      const other = await it.ask('spawn', 'true', [])
      await it.ask('wait', other.runId)
    }
    await until(() => entriesOf(path).length === 1, 'the file has followed')
    assert.deepEqual(
      entriesOf(path).map((entry) => [entry.pid, entry.botPid]),
      [[pid, bot.pid]],
    )
    assert.equal(await bot.ask('state', runId), 'running')
  })

  test('a cancel does not say of a living run that it had exited', options, async (t) => {
    const path = freshRegistry()
    const next = await shortOfDescriptors(t, path)
    const { pid, runId, witness } = await kept(t, { path })
    let cancelled = false
    for (let free = 0; free <= MOST && !cancelled; free++) {
      const result = await withOnly(free, next, 'cancel', runId, { graceMs: 200 })
      const told = `with ${free}: ${JSON.stringify(result)}`
      cancelled = result.outcome === 'cancelled' && result.exits[0].survivors.length === 0
      assert.equal(witness.isGone(), cancelled, told)
      assert.ok(cancelled || !['already-exited', 'not-found'].includes(result.outcome), told)
    }
    if (!cancelled) assert.equal((await next.ask('cancel', { pid })).outcome, 'cancelled')
    assertGone(witness)
    await fileHas(path, 0)
  })

  for (const free of [0, 1, 2]) {
    test(
      `nothing is lost when all but ${free} go between decision and deed: the next call can do it`,
      options,
      async (t) => {
        const { path, pid, runId, witness } = await kept(t)
        const [command, ...args] = [
          ...within,
          process.execPath,
          script('runs-out-of-descriptors.mjs'),
          path,
          `${free}`,
        ]
        const { stdout } = await promisify(execFile)(command, args, { timeout: 60_000 })
        const { between, first, left, second, after } = JSON.parse(stdout)
        assert.ok(between > 50, 'none were taken')
        const endedAtOnce = first.killed?.includes(pid) ?? false
        assert.deepEqual(first.alreadyDead ?? [], [], stdout)
        assert.deepEqual(ids(left), endedAtOnce ? [] : [runId], stdout)
        assert.deepEqual(second.killed, endedAtOnce ? [] : [pid], stdout)
        assert.deepEqual([second.alreadyDead, second.failed, after], [[], [], []], stdout)
        assertGone(witness)
        await fileHas(path, 0)
      },
    )
  }
})
