// Bots that are somebody's runs themselves: a keeper is above everything they see, their environment names runs that are not
// theirs, and what they reap may be what they live in.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync, writeSync } from 'node:fs'
import { Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { describe, test } from 'node:test'
import {
  assertAlive,
  assertGone,
  freshRegistry,
  gone,
  isHelper,
  keeperOf,
  startBot,
  statOf,
  supervise,
  until,
} from './support/bots.mjs'
import { script } from './support/fixtures.mjs'
import { treeNamed, treeOptions } from './support/hostile-trees.mjs'
import { assertReport } from './support/orphans.mjs'
import {
  forScripts,
  linuxOnly,
  NO_FIFO_STREAMS,
  NO_KEEPER,
  NO_SETSID,
  nodeOnly,
  posixOnly,
} from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 3 }

/** fixtures/obedient-bot.mjs, wherever it runs: orders go to `write`, and its answers come from `answers`. */
function boss(write, answers) {
  const waiting = new Map()
  let next = 0
  createInterface({ input: answers }).on('line', (line) => {
    const { id, result, error } = JSON.parse(line)
    const { resolve, reject } = waiting.get(id)
    waiting.delete(id)
    if (error) reject(Object.assign(new Error(error.message), { code: error.code }))
    else resolve(result)
  })
  answers.on('close', () => {
    for (const { reject } of waiting.values()) reject(new Error('the bot is gone'))
  })
  return (order, ...args) => {
    const id = next++
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject })
      write(`${JSON.stringify({ id, order, args })}\n`)
    })
  }
}

/** Has a bot start a tree, and resolves when it stands. */
async function start(t, ask, tree, more) {
  const witness = openWitness(t)
  const { runId, pid } = await ask('spawn', ...tree.command(witness.path), { graceMs: 250, ...more })
  await witness.ready(tree.ready)
  // The command may be faster than its bot's notes.
  const isKnown = async () => (await ask('list', { runId })).find(({ state }) => state === 'running')
  const record = await until(isKnown, 'it is known to run')
  return { pid, record, runId, witness }
}

describe('a bot that is an owned run', posixOnly(NO_KEEPER, together), () => {
  /** It is ours, or that of one that is ours, and so on. */
  async function nested(t) {
    const outer = supervise(freshRegistry(), { graceMs: 500 })
    const path = freshRegistry()
    const args = [script('obedient-bot.mjs'), JSON.stringify({ registryPath: path })]
    const run = outer.spawnOwned(process.execPath, [...forScripts, ...args], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    t.after(() => run.cancel({ graceMs: 0 }))
    return { ask: boss((line) => run.stdin.write(line), run.stdout), path, run }
  }

  /** The zygote first: it gets what a killed keeper leaves behind. */
  function killHelpers(record) {
    const keeper = keeperOf(record)
    const zygote = statOf(keeper).parent
    for (const pid of [zygote, keeper]) {
      assert.ok(isHelper(pid), `${pid} is no helper`)
      process.kill(pid, 'SIGKILL')
    }
  }

  for (const name of ['double-fork-daemon', 'half-setsid', 'ignores-sigterm', 'confusing-comm']) {
    test(
      `loses the keeper and the zygote of ${name}: all of it is ended, and that is said`,
      treeOptions(treeNamed(name), options),
      async (t) => {
        const { ask } = await nested(t)
        const { record, runId, witness } = await start(t, ask, treeNamed(name))
        const exit = ask('wait', runId)
        killHelpers(record)
        const { reason, survivors } = await exit
        assertGone(witness)
        assert.deepEqual([reason, survivors], ['lost', []])
      },
    )
  }

  test('loses them, and its other runs, its keeper and itself go on', options, async (t) => {
    const { ask, run } = await nested(t)
    const other = await start(t, ask, treeNamed('half-setsid'))
    const { record, runId, witness } = await start(t, ask, treeNamed('double-fork-daemon'))
    killHelpers(record)
    assert.equal((await ask('wait', runId)).reason, 'lost')
    assertGone(witness)
    // Their zygote was the same. Their keepers are not.
    assertAlive(other.witness)
    assert.equal((await ask('cancel', other.runId)).outcome, 'cancelled')
    assertGone(other.witness)
    assert.equal(run.state, 'running')
    run.stdin.end()
    assert.equal((await run.wait()).reason, 'exit')
  })

  test('cancels what has lost them, and what is left is not passed over', options, async (t) => {
    const { ask, path } = await nested(t)
    const { record, runId, witness } = await start(t, ask, treeNamed('double-fork-daemon'), {
      onOwnerExit: 'keep',
    })
    killHelpers(record)
    // Somebody outside, who is below no keeper, and the bot itself are at it at the same time.
    const [inside, outside] = await Promise.all([ask('wait', runId), supervise(path).cancel(runId)])
    assertGone(witness)
    for (const { survivors } of [inside, ...outside.exits]) assert.deepEqual(survivors, [])
  })
})

describe(
  'a bot that lives in an orphaned run',
  nodeOnly(NO_FIFO_STREAMS, linuxOnly(NO_SETSID, together)),
  () => {
    /**
     * X has a run in which Y is a bot on the same registry, in a session of its own. X, its zygote and its keepers were killed, and the
     * root is gone: only the cookie says that Y, its helpers and its run belong to X's.
     */
    async function inAnOrphan(t) {
      const path = freshRegistry()
      const folder = dirname(dirname(path))
      const [orders, answers] = ['orders', 'answers'].map((name) => join(folder, name))
      execFileSync('mkfifo', ['-m', '600', orders, answers])
      const written = openSync(orders, constants.O_RDWR)
      t.after(() => closeSync(written))
      const read = openSync(answers, constants.O_RDONLY | constants.O_NONBLOCK)
      const held = openSync(answers, constants.O_WRONLY)
      const output = new Socket({ fd: read, readable: true, writable: false })
      t.after(() => output.destroy())
      const ask = boss((line) => writeSync(written, line), output)

      const x = await startBot(t, path)
      const line = 'setsid "$1" "$2" "$3" <"$4" >"$5" & exec sleep 60'
      const args = [script('obedient-bot.mjs'), JSON.stringify({ registryPath: path }), orders, answers]
      const { pid, runId } = await x.ask('spawn', 'sh', ['-c', line, 'sh', process.execPath, ...args])
      const y = await start(t, ask, treeNamed('half-setsid'))
      closeSync(held)
      const ended = once(output, 'close')
      await x.killWithHelpers()
      process.kill(pid, 'SIGKILL')
      await gone(pid)
      assertAlive(y.witness)
      return { ask, ended, path, pid, runId, y }
    }

    test('does not reap itself, its helpers or its runs', options, async (t) => {
      const { ask, ended, path, pid, y } = await inAnOrphan(t)
      const report = await ask('reapOrphans', { graceMs: 100 })
      assertReport(report, { skipped: [pid] })
      assert.match(report.skipped[0].reason, /refused/)
      assertAlive(y.witness)
      const [entry] = await ask('list', { runId: y.runId })
      assert.equal(entry.state, 'running')
      // Its keeper is the one it had.
      const { exits } = await ask('cancel', y.runId)
      assert.equal(exits[0].reason, 'manual-cancel')
      assertGone(y.witness)
      // And the entry is there for somebody who may.
      assertReport(await supervise(path).reapOrphans(), { killed: [pid] })
      await ended
    })

    test('does not do it by cancelling the run either', options, async (t) => {
      const { ask, ended, path, runId, y } = await inAnOrphan(t)
      await ask('cancel', runId, { graceMs: 100 }).catch(() => {})
      assertAlive(y.witness)
      assert.deepEqual(
        (await ask('list', { runId: y.runId })).map(({ state }) => state),
        ['running'],
      )
      await supervise(path).cancel(y.runId)
      assertGone(y.witness)
      await supervise(path).reapOrphans()
      await ended
    })

    test('is ended with all it has by one that does not', options, async (t) => {
      const { ended, path, pid, y } = await inAnOrphan(t)
      const { killed } = await supervise(path).reapOrphans()
      assert.ok(killed.includes(pid))
      await ended
      await y.witness.gone(20_000)
      // Whether Y's run was ended with it or by its own keeper, it is over.
      const next = supervise(path)
      await until(async () => (await next.reapOrphans()) && next.list().length === 0, 'no entry is left')
    })
  },
)
