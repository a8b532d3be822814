// A bot with few free file descriptors cannot inspect every process. It must not report a process
// as dead that it could not inspect. It drops no entry, and reaps when descriptors are free again.
// (reap-at-once.test.mjs has a run without a keeper.)
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
} from '../support/bots.mjs'
import { kept, owned } from '../support/orphans.mjs'
import { assert, options, script } from '../support/prelude.mjs'
import { NO_DESCRIPTOR_LIMIT, posixTests } from '../support/system.mjs'

const { describe, test } = posixTests(NO_DESCRIPTOR_LIMIT)

/** The tests mostly wait for a file descriptor that never becomes free. */
const together = { timeout: 600_000, concurrency: 6 }

/** A limit that lets a bot start, and that a test exhausts quickly. */
const within = ['sh', '-c', 'ulimit -n 256; exec "$@"', 'sh']
/** More file descriptors than a bot needs to inspect a process, the registry and a keeper. */
const MOST = 12

/**
 * A bot with few file descriptors. It has reaped and spawned once, so that it opens no file for
 * the first time later.
 */
async function shortOfDescriptors(t, path) {
  const bot = await startBot(t, path, { within })
  await bot.ask('reap')
  const { runId } = await bot.ask('spawn', 'true', [])
  await bot.ask('wait', runId)
  return bot
}

/** The bot's answer when only `free` descriptors are free, or the error's code and message. */
const withOnly = (free, bot, ...order) =>
  bot.ask('withDescriptors', free, ...order).catch(({ code, message }) => ({ code, message }))

const ids = (records) => records.map(({ runId }) => runId)

describe('with few free file descriptors', together, () => {
  test('reapOrphans ends a kept run, or leaves it unchanged for a later call', options, async (t) => {
    const path = freshRegistry()
    const next = await shortOfDescriptors(t, path)
    const { pid, runId, witness } = await kept(t, { path })
    let ended = false
    let refusals = 0
    for (let free = 0; free <= MOST && !ended; free++) {
      const report = await withOnly(free, next, 'reap')
      const context = `with ${free}: ${JSON.stringify(report)}`
      ended = report.killed?.includes(pid) ?? false
      assert.equal(witness.isGone(), ended, context)
      if (ended) continue
      refusals++
      assert.deepEqual([report.alreadyDead ?? [], report.killed ?? []], [[], []], context)
      assert.deepEqual(ids(await next.ask('list')), [runId], context)
    }
    assert.ok(refusals > 0, 'descriptors never ran out')
    const { killed, alreadyDead } = await next.ask('reap')
    assert.deepEqual([killed, alreadyDead], [ended ? [] : [pid], []])
    assertGone(witness)
    await fileHas(path, 0)
  })

  test('the run of a live bot keeps its owner and its registry entry', options, async (t) => {
    const path = freshRegistry()
    const next = await shortOfDescriptors(t, path)
    const { bot, pid, runId, witness } = await owned(t, { path })
    await fileHas(path, 1)
    for (let free = 0; free <= MOST; free++) {
      const report = await withOnly(free, next, 'reap')
      const context = `with ${free}: ${JSON.stringify(report)}`
      for (const list of ['killed', 'alreadyDead', 'adopted', 'failed'])
        assert.deepEqual(report[list] ?? [], [], context)
      assertAlive(witness)
      assert.deepEqual(ids(await next.ask('list')), [runId], context)
    }
    // Let both bots write the file once more.
    for (const it of [next, bot]) {
      const other = await it.ask('spawn', 'true', [])
      await it.ask('wait', other.runId)
    }
    await until(() => entriesOf(path).length === 1, 'the file has only the entry of the live run')
    assert.deepEqual(
      entriesOf(path).map((entry) => [entry.pid, entry.botPid]),
      [[pid, bot.pid]],
    )
    assert.equal(await bot.ask('state', runId), 'running')
  })

  test('cancel does not report a live run as already exited', options, async (t) => {
    const path = freshRegistry()
    const next = await shortOfDescriptors(t, path)
    const { pid, runId, witness } = await kept(t, { path })
    let cancelled = false
    for (let free = 0; free <= MOST && !cancelled; free++) {
      const result = await withOnly(free, next, 'cancel', runId, { graceMs: 200 })
      const context = `with ${free}: ${JSON.stringify(result)}`
      cancelled = result.outcome === 'cancelled' && result.exits[0].survivors.length === 0
      assert.equal(witness.isGone(), cancelled, context)
      assert.ok(cancelled || !['already-exited', 'not-found'].includes(result.outcome), context)
    }
    if (!cancelled) assert.equal((await next.ask('cancel', { pid })).outcome, 'cancelled')
    assertGone(witness)
    await fileHas(path, 0)
  })

  for (const free of [0, 1, 2]) {
    test(
      `the next call ends a run if only ${free} stay free between the decision and the signal`,
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
        assert.ok(between > 50, 'no descriptors were taken')
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
