// Bots that are runs of another bot. The outer keeper is an ancestor of all their processes, their
// environment names runs that are not theirs, and they can reap the run that they live in.
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync, writeSync } from 'node:fs'
import { Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
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
} from '../support/bots.mjs'
import { treeNamed, treeOptions } from '../support/hostile-trees.mjs'
import { assertReport } from '../support/orphans.mjs'
import { assert, describe, openWitness, options, script, test } from '../support/prelude.mjs'
import {
  forScripts,
  linuxOnly,
  NO_FIFO_STREAMS,
  NO_KEEPER,
  NO_SETSID,
  nodeOnly,
  posixOnly,
} from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

/**
 * Returns a function that sends orders to a fixtures/obedient-bot.mjs: `write` sends an order, and
 * the answers arrive on `answers`.
 */
function sendOrders(write, answers) {
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

/** Makes a bot start a tree and resolves when the tree is ready. */
async function start(t, ask, tree, more) {
  const witness = openWitness(t)
  const { runId, pid } = await ask('spawn', ...tree.command(witness.path), { graceMs: 250, ...more })
  await witness.ready(tree.ready)
  // The command can be ready before its bot has recorded that it runs.
  const isKnown = async () => (await ask('list', { runId })).find(({ state }) => state === 'running')
  const record = await until(isKnown, 'the bot lists the run as running')
  return { pid, record, runId, witness }
}

describe('a bot that is an owned run', posixOnly(NO_KEEPER, together), () => {
  /** Starts a bot that is a run of this process. */
  async function nested(t) {
    const outer = supervise(freshRegistry(), { graceMs: 500 })
    const path = freshRegistry()
    const args = [script('obedient-bot.mjs'), JSON.stringify({ registryPath: path })]
    const run = outer.spawnOwned(process.execPath, [...forScripts, ...args], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    t.after(() => run.cancel({ graceMs: 0 }))
    return { ask: sendOrders((line) => run.stdin.write(line), run.stdout), path, run }
  }

  /** Kills the zygote before the keeper, because the zygote adopts what a killed keeper leaves. */
  function killHelpers(record) {
    const keeper = keeperOf(record)
    const zygote = statOf(keeper).parent
    for (const pid of [zygote, keeper]) {
      assert.ok(isHelper(pid), `${pid} is not a helper`)
      process.kill(pid, 'SIGKILL')
    }
  }

  for (const name of ['double-fork-daemon', 'half-setsid', 'ignores-sigterm', 'confusing-comm']) {
    test(
      `loses the keeper and the zygote of ${name}, ends the whole tree and reports it as lost`,
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

  test(
    'loses the keeper and the zygote of a run, and its other runs and the bot itself go on',
    options,
    async (t) => {
      const { ask, run } = await nested(t)
      const other = await start(t, ask, treeNamed('half-setsid'))
      const { record, runId, witness } = await start(t, ask, treeNamed('double-fork-daemon'))
      killHelpers(record)
      assert.equal((await ask('wait', runId)).reason, 'lost')
      assertGone(witness)
      // Both runs had the same zygote, but each has its own keeper.
      assertAlive(other.witness)
      assert.equal((await ask('cancel', other.runId)).outcome, 'cancelled')
      assertGone(other.witness)
      assert.equal(run.state, 'running')
      run.stdin.end()
      assert.equal((await run.wait()).reason, 'exit')
    },
  )

  test('cancels a run without keeper and zygote, and leaves no process', options, async (t) => {
    const { ask, path } = await nested(t)
    const { record, runId, witness } = await start(t, ask, treeNamed('double-fork-daemon'), {
      onOwnerExit: 'keep',
    })
    killHelpers(record)
    // A supervisor outside, which has no keeper above it, and the bot itself end the run at the
    // same time.
    const [inside, outside] = await Promise.all([ask('wait', runId), supervise(path).cancel(runId)])
    assertGone(witness)
    for (const { survivors } of [inside, ...outside.exits]) assert.deepEqual(survivors, [])
  })
})

describe('a bot inside an orphaned run', nodeOnly(NO_FIFO_STREAMS, linuxOnly(NO_SETSID, together)), () => {
  /**
   * Bot X has a run in which Y is a bot on the same registry, in its own session. X, its zygote
   * and its keepers are killed, and the root process is dead. Only the cookie shows that Y, its
   * helpers and its run are members of X's run.
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
    const ask = sendOrders((line) => writeSync(written, line), output)

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
    // The run still has its keeper.
    const { exits } = await ask('cancel', y.runId)
    assert.equal(exits[0].reason, 'manual-cancel')
    assertGone(y.witness)
    // The entry stays for a supervisor that may reap the run.
    assertReport(await supervise(path).reapOrphans(), { killed: [pid] })
    await ended
  })

  test('does not end itself when it cancels the outer run', options, async (t) => {
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

  test('is ended with all its runs by a supervisor outside that run', options, async (t) => {
    const { ended, path, pid, y } = await inAnOrphan(t)
    const { killed } = await supervise(path).reapOrphans()
    assert.ok(killed.includes(pid))
    await ended
    await y.witness.gone(20_000)
    // The run of Y has ended, either with Y or by its own keeper.
    const next = supervise(path)
    await until(async () => (await next.reapOrphans()) && next.list().length === 0, 'no entry is left')
  })
})
