// worker_threads: each worker is a separate owner. Its actions and its end do not affect the other
// workers.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { assertAlive, assertGone, fileHas, freshRegistry, supervise } from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { assert, describe, openWitness, options, program, script, test } from '../support/prelude.mjs'
import { NO_SHELL, NO_TTY, NO_WORKERS_END, notInDeno, posixOnly } from '../support/system.mjs'

const GRACE_MS = 300

/**
 * Starts a worker on this registry. `ask` makes it run an order of fixtures/worker-to-order.mjs.
 */
function startWorker(t, registryPath) {
  const worker = new Worker(script('worker-to-order.mjs'), { workerData: { registryPath } })
  t.after(() => worker.terminate())
  const pending = new Map()
  let last = 0
  worker.on('message', ({ id, value, error }) => {
    const { resolve, reject } = pending.get(id)
    pending.delete(id)
    if (error) reject(Object.assign(new Error(error.message), { code: error.code }))
    else resolve(value)
  })
  const ask = (order, ...args) =>
    new Promise((resolve, reject) => {
      const id = ++last
      pending.set(id, { resolve, reject })
      worker.postMessage({ id, order, args })
    })
  return { worker, ask }
}

const startWorkers = (t, path, count) => Array.from({ length: count }, () => startWorker(t, path))

/** Starts a tree in a worker, and waits until it is ready. */
async function standing(t, { ask }, tree = treeNamed('half-setsid')) {
  const witness = openWitness(t)
  const [command, args] = tree.command(witness.path)
  const run = await ask('spawn', command, args, { graceMs: GRACE_MS })
  await witness.ready(tree.ready)
  return { ...run, witness }
}

describe('several workers at once', () => {
  test('run commands, and each gets the exits of its own', posixOnly(NO_SHELL, options), async (t) => {
    const path = freshRegistry()
    const workers = startWorkers(t, path, 4)
    const tasks = workers.flatMap(({ ask }, worker) =>
      Array.from({ length: 10 }, async (_, run) => {
        const word = `${worker}-${run}`
        const { said, exit } = await ask('output', 'sh', ['-c', 'echo "$1"; exit "$2"', 'sh', word, run])
        assert.deepEqual([said, exit.reason, exit.exitCode], [`${word}\n`, 'exit', run])
      }),
    )
    await Promise.all(tasks)
    await fileHas(path, 0)
  })

  test('are separate owners on one registry', options, async (t) => {
    const path = freshRegistry()
    const workers = startWorkers(t, path, 3)
    const runs = await Promise.all(workers.map((worker) => standing(t, worker)))
    const owners = await Promise.all(workers.map(({ ask }) => ask('instanceId')))
    assert.equal(new Set(owners).size, 3)
    for (const { ask } of workers) {
      const seen = (await ask('list')).map(({ runId, ownerInstanceId }) => [runId, ownerInstanceId])
      assert.deepEqual(seen.toSorted(), runs.map(({ runId }, index) => [runId, owners[index]]).toSorted())
    }
    // No worker treats the others as dead bots.
    const reports = await Promise.all(workers.map(({ ask }) => ask('reap')))
    for (const { killed, failed } of reports) assert.deepEqual([killed, failed], [[], []])
    for (const { witness } of runs) assertAlive(witness)
  })

  test('cancel their own runs at the same time', options, async (t) => {
    const path = freshRegistry()
    const workers = startWorkers(t, path, 4)
    const runs = await Promise.all(workers.map((worker) => standing(t, worker)))
    const results = await Promise.all(workers.map(({ ask }, index) => ask('cancel', runs[index].runId)))
    for (const [index, { outcome, exits }] of results.entries()) {
      assertGone(runs[index].witness)
      assert.deepEqual([outcome, exits[0].runId], ['cancelled', runs[index].runId])
      assert.deepEqual([exits[0].reason, exits[0].survivors], ['manual-cancel', []])
    }
    await fileHas(path, 0)
  })

  test('can cancel a run of another worker, and its owner gets the exit', options, async (t) => {
    const [one, other] = startWorkers(t, freshRegistry(), 2)
    const run = await standing(t, one)
    const ended = one.ask('wait', run.runId)
    assert.equal((await other.ask('cancel', run.runId)).outcome, 'cancelled')
    assertGone(run.witness)
    assert.equal((await ended).reason, 'manual-cancel')
  })
})

describe('the end of a worker', () => {
  for (const [how, end] of Object.entries({
    'terminate()': ({ worker }) => worker.terminate(),
    'process.exit()': ({ worker, ask }) => {
      ask('leave')
      return once(worker, 'exit')
    },
  })) {
    test(`by ${how} ends its runs, and no other run`, notInDeno(NO_WORKERS_END, options), async (t) => {
      const path = freshRegistry()
      const [one, other] = startWorkers(t, path, 2)
      const here = supervise(path)
      const [its, others] = [await standing(t, one), await standing(t, other)]
      const own = openWitness(t)
      const mine = here.spawnOwned(program('stays'), [own.path], { stdio: 'ignore' })
      await own.ready(1)
      await end(one)
      await its.witness.gone(10_000)
      assertAlive(others.witness)
      assertAlive(own)
      assert.equal(await other.ask('state', others.runId), 'running')
      // Both can still cancel their runs.
      assert.equal((await other.ask('cancel', others.runId)).outcome, 'cancelled')
      assert.equal((await mine.cancel()).reason, 'manual-cancel')
      assertGone(others.witness)
      assertGone(own)
    })
  }
})

describe('the end of a bot whose workers own runs', () => {
  const expected = {
    'process.exit()': [0, null],
    'an uncaught exception': [1, null],
    'terminated workers': [0, null],
  }
  for (const [how, ending] of Object.entries(expected)) {
    test(`by ${how} is not a crash, and ends the runs`, options, async (t) => {
      for (let round = 0; round < 5; round++) {
        const witness = openWitness(t)
        const args = [script('bot-with-workers.mjs'), freshRegistry(), witness.path, program('stays'), how]
        const bot = spawn(process.execPath, args, { stdio: ['pipe', 'inherit', 'pipe'] })
        let errorOutput = ''
        bot.stderr.on('data', (text) => {
          errorOutput += text
        })
        const ended = once(bot, 'close')
        await witness.ready(4)
        bot.stdin.write('now')
        assert.deepEqual(await ended, ending, errorOutput)
        await witness.gone(10_000)
      }
    })
  }
})

test(
  'a run in a worker gets its own terminal settings, not those of the bot',
  posixOnly(NO_TTY, options),
  async (t) => {
    const { ask } = startWorker(t, freshRegistry())
    for (const [name, value] of Object.entries({ TERM: 'dumb', LINES: '3', COLUMNS: '7' }))
      await ask('setVariable', name, value)
    const { said } = await ask('output', 'sh', ['-c', 'echo "$TERM,$LINES,$COLUMNS"'], { pty: true })
    assert.equal(said, 'xterm-256color,,\r\n')
  },
)
