// Several bots on one registry. REGISTRY_SPAWNS=200 makes each of them start that many runs instead
// of a few. SEED repeats the instants at which a bot is stopped.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { startBot } from '../support/obedient-bot.mjs'
import { assert, describe, openWitness, program, script, test } from '../support/prelude.mjs'
import { instant, randomFor, seed } from '../support/random.mjs'
import { openRegistry, until } from '../support/registry.mjs'
import { NO_KEEPER, NO_STOPPING, posixOnly } from '../support/system.mjs'

const BOTS = 8
const SPAWNS = Number(process.env.REGISTRY_SPAWNS ?? 25)
const AT_ONCE = 5
const STOPS = Number(process.env.REGISTRY_STOPS ?? 10)
const cat = ['cat', [], { stdio: ['pipe', 'ignore', 'ignore'] }]
const botOn = (t, { path }) => startBot(t, { options: { registryPath: path } })

/** Starts a thread that reads the file all the time. Returns a function that stops it. */
function startReader(t, { path, folder }) {
  mkdirSync(folder, { recursive: true })
  const stop = new Int32Array(new SharedArrayBuffer(4))
  const reader = new Worker(script('reads-all-the-while.mjs'), { workerData: { path, stop } })
  const report = once(reader, 'message')
  const finish = async () => {
    Atomics.store(stop, 0, 1)
    Atomics.notify(stop, 0)
    const [seen] = await report
    return seen
  }
  t.after(finish)
  return finish
}

/** Starts a process that holds the registry's lock. Returns a function that releases it. */
async function holdLock(t, { lock, folder }) {
  mkdirSync(folder, { recursive: true })
  const witness = openWitness(t)
  const holder = spawn(program('holds-lock'), [witness.path, lock], { stdio: 'ignore' })
  await witness.ready(1)
  return async () => {
    holder.kill()
    await witness.gone(20_000)
  }
}

describe(`${BOTS} bots that start ${SPAWNS} runs each`, () => {
  test('lose none, leave none, and write a file that is valid at every instant', {
    timeout: 300_000 + SPAWNS * 1000,
  }, async (t) => {
    const registry = openRegistry(t)
    const finish = startReader(t, registry)
    // The reader checks each file in the folder, so it must contain only files of the registry.
    const { list, reapOrphans } = registry.supervise({ eventLogPath: null })
    const listed = () => new Set(list().map(({ runId }) => runId))
    const behind = []

    // The entry of a dead bot must survive all writes of the others.
    const witness = openWitness(t)
    const dead = botOn(t, registry)
    const orphan = await dead.ask('start', program('stays'), [witness.path], { detached: true })
    await witness.ready(1)
    const { runId: orphanId } = await dead.ask('registerProcess', { pid: orphan })
    await dead.kill('SIGKILL')

    async function work(bot) {
      for (let started = 0; started < SPAWNS; started += AT_ONCE) {
        const wanted = Math.min(AT_ONCE, SPAWNS - started)
        const runs = await Promise.all(Array.from({ length: wanted }, () => bot.ask('spawn', ...cat)))
        const from = performance.now()
        const alive = listed()
        for (const { runId } of runs) assert.ok(alive.has(runId), `${runId} lives and is not listed`)
        for (const { runId } of runs) await registry.has(runId)
        behind.push(performance.now() - from)
        await Promise.all(runs.map(({ runId }) => bot.ask('endInput', runId)))
        await Promise.all(runs.map(({ runId }) => bot.ask('wait', runId)))
        const after = listed()
        for (const { runId } of runs) assert.ok(!after.has(runId), `${runId} has ended and is listed`)
      }
    }
    const bots = Array.from({ length: BOTS }, () => botOn(t, registry))
    await Promise.all(bots.map(work))
    assert.deepEqual([...listed()], [orphanId])
    await Promise.all(bots.map((bot) => bot.dismiss()))
    for (const bot of bots) assert.equal(bot.complaint, '')

    assert.deepEqual(
      registry.entries().map(({ runId }) => runId),
      [orphanId],
    )
    assert.deepEqual((await reapOrphans()).killed, [orphan])
    assert.equal(witness.isGone(), true)
    await registry.lacks(orphanId)
    await registry.settled()
    assert.deepEqual(registry.read(), { version: 1, entries: [] })
    const left = registry.files().filter((name) => name !== 'process-registry.json.history')
    assert.deepEqual(left, ['process-registry.json', 'process-registry.json.lock'])

    const { reads, most, wrong, files } = await finish()
    assert.deepEqual(wrong, [])
    assert.ok(reads > 20 && most > AT_ONCE, `${reads} reads, at most ${most} entries`)
    for (const file of files) assert.match(file, /^$|^\.(journal|journal\.old|lock|tmp|history)$/)
    console.log(
      `${BOTS} bots × ${SPAWNS} runs: the file was read ${reads} times, with at most ${most} entries, ` +
        `and at most ${Math.max(...behind).toFixed(0)} ms behind`,
    )
  })
})

describe('a bot', { timeout: 120_000 }, () => {
  test('refuses the run id of another bot’s live run, also for its first run', async (t) => {
    const registry = openRegistry(t)
    const [first, second] = [botOn(t, registry), botOn(t, registry)]
    const [command, args, options] = cat
    const named = [command, args, { ...options, runId: 'the-one' }]
    await first.ask('spawn', ...named)
    await registry.has('the-one')
    await assert.rejects(second.ask('spawn', ...named), { code: 'ERR_OWNED_DUPLICATE_RUN' })
    assert.equal((await second.ask('list')).length, 1)
    await first.ask('endInput', 'the-one')
    await first.ask('wait', 'the-one')
    await registry.lacks('the-one')
    await second.ask('spawn', ...named)
    assert.equal((await registry.has('the-one')).botPid, second.pid)
  })

  test(
    `stopped at ${STOPS} random instants, possibly with the lock, blocks no other bot`,
    posixOnly(NO_STOPPING),
    async (t) => {
      const random = randomFor('stopped')
      const registry = openRegistry(t)
      const { spawnOwned, list } = registry.supervise()
      const busy = botOn(t, registry)
      const done = busy.ask('keepSpawning')
      await until(() => registry.entries().length > 0, 'the other bot has started runs')
      const times = []
      for (let i = 0; i < STOPS; i++) {
        await instant(random() * 80)
        busy.child.kill('SIGSTOP')
        const from = performance.now()
        const run = spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
        assert.ok(list().some(({ runId }) => runId === run.runId))
        run.stdin.end()
        await run.wait()
        times.push(performance.now() - from)
        assert.ok(list().every(({ runId }) => runId !== run.runId))
        busy.child.kill('SIGCONT')
      }
      await busy.ask('stop')
      await done
      // A bot that waited for the stopped one would hang, because the SIGCONT comes later.
      console.log(
        `beside a stopped bot a run took at most ${Math.max(...times).toFixed(0)} ms (SEED=${seed})`,
      )
      await registry.settled()
      assert.deepEqual(registry.entries(), [])
    },
  )
})

describe('while another process holds the lock', { timeout: 120_000 }, () => {
  test('runs are started, found and ended as usual, and the file is updated later', async (t) => {
    const registry = openRegistry(t)
    const release = await holdLock(t, registry)
    const { spawnOwned } = registry.supervise()
    const other = botOn(t, registry)
    const runs = Array.from({ length: 5 }, () => spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] }))
    const ids = (records) => records.map(({ runId }) => runId).sort()
    assert.deepEqual(ids(await other.ask('list')), ids(runs))
    const { outcome } = await other.ask('cancel', runs[0].runId)
    assert.deepEqual([outcome, (await runs[0].wait()).reason], ['cancelled', 'manual-cancel'])
    runs[1].stdin.end()
    await runs[1].wait()
    assert.deepEqual(ids(await other.ask('list')), ids(runs.slice(2)))
    assert.equal(registry.read(), undefined, 'no process could write the file')
    await release()
    await until(() => ids(registry.entries()).join() === ids(runs.slice(2)).join(), 'the file is up to date')
    await Promise.all(runs.slice(2).map((run) => run.cancel()))
  })

  test('the keepers of a killed bot end their runs and record that', posixOnly(NO_KEEPER), async (t) => {
    const registry = openRegistry(t)
    const witness = openWitness(t)
    const bot = botOn(t, registry)
    const { pid, runId } = await bot.ask('spawn', program('stays'), [witness.path])
    await witness.ready(1)
    await registry.has(runId, 'running')
    const release = await holdLock(t, registry)
    await bot.kill('SIGKILL')
    await witness.gone(20_000)
    await until(() => registry.everything().includes('"owner-exit"'), 'the end is recorded')
    const { list, reapOrphans } = registry.supervise()
    assert.deepEqual(list(), [])
    const { killed, alreadyDead } = await reapOrphans()
    assert.deepEqual([killed, alreadyDead], [[], [pid]])
    await release()
    await registry.lacks(runId)
  })

  test('a bot that exits does not wait for the lock', async (t) => {
    const registry = openRegistry(t)
    const bot = botOn(t, registry)
    const { runId } = await bot.ask('spawn', ...cat)
    await registry.has(runId)
    const release = await holdLock(t, registry)
    await bot.ask('endInput', runId)
    await bot.askLast('wait', runId)
    // The lock is held until the bot has exited.
    assert.deepEqual(await bot.ended, [0, null])
    assert.deepEqual(registry.supervise().list(), [], 'the journal has the end of the run')
    await release()
    // The next process that writes to the registry brings the file up to date.
    await registry.supervise().spawnOwned('true', { stdio: 'ignore' }).wait()
    await registry.lacks(runId)
  })
})
