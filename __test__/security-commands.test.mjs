// What a hostile command can do with what it is given, and to whoever keeps it.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import {
  assertGone,
  freshRegistry,
  keeperOf,
  startBot,
  stateOf,
  statOf,
  supervise,
  until,
} from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { linuxTests, NO_PROC } from './support/system.mjs'
import { CLEANED_UP, openWitness } from './support/witness.mjs'

const { describe, test } = linuxTests(NO_PROC)
const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 3 }

/** What a process has open: what each descriptor is, by number. Of our own, that by which this is read is gone by then. */
function openIn(pid) {
  const open = {}
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    try {
      open[fd] = readlinkSync(`/proc/${pid}/fd/${fd}`)
    } catch ({ code }) {
      assert.equal(code, 'ENOENT')
    }
  }
  return open
}

describe('a command has none of the descriptors of bot, zygote and keeper:', together, () => {
  const kinds = {
    'with pipes': [{ stdio: 'pipe' }, 3],
    'with nothing': [{ stdio: ['pipe', 'ignore', 'ignore'] }, 3],
    'with four pipes': [{ stdio: ['pipe', 'pipe', 'pipe', 'pipe'] }, 4],
    'with a channel': [{ stdio: ['pipe', 'ignore', 'ignore', 'ipc'] }, 4],
    'with a terminal': [{ pty: true }, 3],
    'that may outlive its bot': [{ stdio: ['pipe', 'ignore', 'ignore'], onOwnerExit: 'keep' }, 3],
  }
  for (const [what, [more, count]] of Object.entries(kinds)) {
    test(what, options, async (t) => {
      const supervisor = supervise(freshRegistry())
      const run = supervisor.spawnOwned('cat', { graceMs: 100, ...more })
      t.after(() => run.cancel({ graceMs: 0 }))
      const keeper = keeperOf(supervisor.list({ runId: run.runId })[0])
      await until(() => readFileSync(`/proc/${run.pid}/comm`, 'utf8') === 'cat\n', 'the command is executed')
      // Its loader opens the libraries, and closes them again.
      const isSettled = () => String(Object.keys(openIn(run.pid))) === String([...Array(count).keys()])
      await until(isSettled, `it has ${count} descriptors`)
      const its = openIn(run.pid)
      // Each end of a pair of sockets has a number of its own; whoever has the same holds the same end.
      const sockets = Object.values(its).filter((it) => it.startsWith('socket:'))
      const held = (pid) => Object.values(openIn(pid)).filter((it) => sockets.includes(it))
      for (const pid of [keeper, statOf(keeper).parent])
        assert.deepEqual(held(pid), [], `${pid} has them, too`)
      // Its native thread closes what the bot has of them, in a moment.
      await until(() => held(process.pid).length === 0, 'the bot has none of its ends')
    })
  }
})

describe('a command that traces its keeper, and holds it still,', together, () => {
  const ways = {
    'does not outlive its deadline': { timeoutMs: 500, stdio: 'ignore' },
    'does not outlive its silence': { noOutputTimeoutMs: 500 },
    'is ended by a cancel': { stdio: 'ignore' },
  }
  for (const [what, more] of Object.entries(ways)) {
    test(what, options, async (t) => {
      const supervisor = supervise(freshRegistry())
      const witness = openWitness(t)
      const run = supervisor.spawnOwned(program('traces-its-keeper'), [witness.path], {
        graceMs: 100,
        ...more,
      })
      run.stdout?.resume()
      await witness.ready(1)
      const keeper = keeperOf(supervisor.list()[0])
      if (stateOf(keeper) !== 't') t.diagnostic('the system does not let it: nothing to hold')
      const { survivors, reason } =
        more.timeoutMs || more.noOutputTimeoutMs ? await run.wait() : await run.cancel()
      assert.ok(witness.isGone(), reason)
      assert.deepEqual(survivors, [])
      assert.deepEqual(supervisor.list(), [])
    })
  }

  test('is ended by the next bot, should its own be killed', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const { pid } = await bot.ask('spawn', program('traces-its-keeper'), [witness.path], { graceMs: 100 })
    await witness.ready(1)
    await bot.kill()
    const { killed, alreadyDead } = await supervise(path).reapOrphans()
    assert.deepEqual([...killed, ...alreadyDead], [pid])
    assertGone(witness)
  })
})

// Nothing but its parents leads to that tracer: no group, no cookie. And a keeper that is traced is not waited for when it is dead.
describe('a command that traces its keeper from afar', together, () => {
  const tracer = program('traces-its-keeper-from-afar')

  /** Both of its processes, and whether it was let. */
  async function standing(t, witness) {
    await witness.ready(2)
    if (witness.count(CLEANED_UP) > 0) t.diagnostic('the system does not let it: nobody is traced')
  }

  test('goes with a keeper that is killed', options, async (t) => {
    const supervisor = supervise(freshRegistry())
    const witness = openWitness(t)
    const run = supervisor.spawnOwned(tracer, [witness.path], { stdio: 'ignore', graceMs: 100 })
    await standing(t, witness)
    process.kill(keeperOf(supervisor.list()[0]), 'SIGKILL')
    const { reason, survivors } = await run.wait()
    assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
    assert.deepEqual([reason, survivors], ['lost', []])
  })

  test('goes with a keeper that is killed when there is no bot any more', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    await bot.ask('spawn', tracer, [witness.path], { onOwnerExit: 'keep', graceMs: 100 })
    await standing(t, witness)
    const keeper = keeperOf(supervise(path).list()[0])
    const zygote = statOf(keeper).parent
    await bot.kill()
    const hearsNobody = () => Object.values(openIn(zygote)).every((it) => !it.startsWith('socket:'))
    await until(hearsNobody, 'the zygote has noticed')
    process.kill(keeper, 'SIGKILL')
    await witness.gone(45_000)
  })

  test('cannot hold it at its exit: it is ended by a cancel', options, async (t) => {
    const supervisor = supervise(freshRegistry())
    const witness = openWitness(t)
    const run = supervisor.spawnOwned(tracer, [witness.path, 'at-exit'], { stdio: 'ignore', graceMs: 100 })
    await standing(t, witness)
    process.kill(keeperOf(supervisor.list()[0]), 'SIGKILL')
    const cancelled = run.cancel()
    // Before it ends by itself.
    await witness.gone(45_000)
    assert.deepEqual((await cancelled).survivors, [])
  })

  test('cannot hold it at its exit: it is ended by the next bot', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const { pid } = await bot.ask('spawn', tracer, [witness.path, 'at-exit'], { graceMs: 100 })
    await standing(t, witness)
    const supervisor = supervise(path)
    process.kill(keeperOf(supervisor.list()[0]), 'SIGKILL')
    await bot.kill()
    const { killed } = await supervisor.reapOrphans()
    assert.deepEqual(killed, [pid])
    await witness.gone(45_000)
  })
})
