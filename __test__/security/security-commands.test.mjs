// What a hostile command can do with its file descriptors and to its keeper.
import { execFileSync } from 'node:child_process'
import { chownSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { dirname } from 'node:path'
import { registryOf, USER_A, withoutUsers } from '../support/another-user.mjs'
import {
  assertGone,
  freshRegistry,
  keeperOf,
  startBot,
  stateOf,
  statOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { assert, CLEANED_UP, openWitness, options, program, script } from '../support/prelude.mjs'
import { linuxTests, NO_PROC } from '../support/system.mjs'

const { describe, test } = linuxTests(NO_PROC)
const together = { timeout: 600_000, concurrency: 3 }
const isRoot = process.getuid?.() === 0
const onlyRoot = { ...options, skip: !isRoot && 'only root sees what a zygote has open' }

/**
 * The open file descriptors of a process: descriptor to target. Skips the one that reads the
 * directory, which is closed by then.
 */
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

describe('a command has no file descriptor of bot, zygote or keeper:', together, () => {
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
      // The dynamic loader opens and closes the libraries first.
      const isSettled = () => String(Object.keys(openIn(run.pid))) === String([...Array(count).keys()])
      await until(isSettled, `it has ${count} descriptors`)
      const its = openIn(run.pid)
      // Each end of a socket pair has its own inode. A process with the same inode holds that end.
      const sockets = Object.values(its).filter((it) => it.startsWith('socket:'))
      const held = (pid) => Object.values(openIn(pid)).filter((it) => sockets.includes(it))
      // Only root can list the descriptors of the helpers.
      for (const pid of isRoot ? [keeper, statOf(keeper).parent] : [])
        assert.deepEqual(held(pid), [], `process ${pid} also holds a socket of the command`)
      // A native thread of the bot closes the bot's copies soon.
      await until(() => held(process.pid).length === 0, 'the bot has none of its ends')
    })
  }
})

describe('a command that traces its keeper and keeps it stopped', together, () => {
  const ways = {
    'is ended by its timeout': { timeoutMs: 500, stdio: 'ignore' },
    'is ended by its idle timeout': { noOutputTimeoutMs: 500 },
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
      if (stateOf(keeper) !== 't') t.diagnostic('the kernel forbids the command to trace its keeper')
      const { survivors, reason } =
        more.timeoutMs || more.noOutputTimeoutMs ? await run.wait() : await run.cancel()
      assert.ok(witness.isGone(), reason)
      assert.deepEqual(survivors, [])
      assert.deepEqual(supervisor.list(), [])
    })
  }

  test('is ended by the next bot if its own bot is killed', options, async (t) => {
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

// Only its ancestry identifies that tracer: it has left the group and has no cookie. The parent
// cannot reap a dead keeper while the keeper is traced.
describe('a command whose detached descendant traces the keeper', together, () => {
  const tracer = program('traces-its-keeper-from-afar')

  /** Waits for both processes. Returns whether the kernel permits the trace. */
  async function standing(t, witness) {
    await witness.ready(2)
    const isTraced = witness.count(CLEANED_UP) === 0
    if (!isTraced) t.diagnostic('the kernel forbids the command to trace its keeper')
    return isTraced
  }

  test('is ended when its keeper is killed', options, async (t) => {
    const supervisor = supervise(freshRegistry())
    const witness = openWitness(t)
    const run = supervisor.spawnOwned(tracer, [witness.path], { stdio: 'ignore', graceMs: 100 })
    await standing(t, witness)
    process.kill(keeperOf(supervisor.list()[0]), 'SIGKILL')
    const { reason, survivors } = await run.wait()
    assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
    assert.deepEqual([reason, survivors], ['lost', []])
  })

  test('is ended when its keeper is killed after its bot', onlyRoot, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    await bot.ask('spawn', tracer, [witness.path], { onOwnerExit: 'keep', graceMs: 100 })
    await standing(t, witness)
    const keeper = keeperOf(supervise(path).list()[0])
    const zygote = statOf(keeper).parent
    await bot.kill()
    const hasNoSocket = () => Object.values(openIn(zygote)).every((it) => !it.startsWith('socket:'))
    await until(hasNoSocket, 'the zygote has seen the death of the bot')
    process.kill(keeper, 'SIGKILL')
    await witness.gone(45_000)
  })

  test('is ended by a cancel, even if it stops the keeper at its exit', options, async (t) => {
    const supervisor = supervise(freshRegistry())
    const witness = openWitness(t)
    const run = supervisor.spawnOwned(tracer, [witness.path, 'at-exit'], { stdio: 'ignore', graceMs: 100 })
    await standing(t, witness)
    process.kill(keeperOf(supervisor.list()[0]), 'SIGKILL')
    const cancelled = run.cancel()
    // Sooner than the program ends by itself.
    await witness.gone(45_000)
    assert.deepEqual((await cancelled).survivors, [])
  })

  test('is ended by the next bot, even if it stops the keeper at its exit', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const { pid } = await bot.ask('spawn', tracer, [witness.path, 'at-exit'], { graceMs: 100 })
    const isTraced = await standing(t, witness)
    const supervisor = supervise(path)
    process.kill(keeperOf(supervisor.list()[0]), 'SIGKILL')
    await bot.kill()
    const { killed, alreadyDead } = await supervisor.reapOrphans()
    // If the kernel forbids the trace, the zygote may end the run first.
    assert.deepEqual(isTraced ? killed : [...killed, ...alreadyDead], [pid])
    await witness.gone(45_000)
  })
})

describe('a command that forges the end message of its keeper', together, () => {
  /** The keeper's messages "root exited with 0" and "no process is left", as hexadecimal digits. */
  function forgedEnd() {
    const said = execFileSync(script('../../native/spawn-owned-keeper'), ['--version'], { encoding: 'utf8' })
    const version = Number(/protocol (\d+)/.exec(said)[1])
    const frame = (...payload) =>
      Buffer.from([0x53, 0x4f, version, 0, payload.length, 0, 0, 0, ...payload]).toString('hex')
    // `Ended` in src/run/ended.rs has 12 fields, of one byte each here. With fewer, the message is invalid.
    return frame(7, 0, 0) + frame(8, ...Array(12).fill(0))
  }

  test('is ended, and the message is not accepted', options, async (t) => {
    const supervisor = supervise(freshRegistry())
    const witness = openWitness(t)
    const args = [witness.path, forgedEnd()]
    const run = supervisor.spawnOwned(program('forges-its-end'), args, {
      stdio: ['pipe', 'ignore', 'ignore'],
    })
    t.after(() => run.stdin.destroy())
    await witness.ready(1)
    // A command that may trace its keeper (as root) has sent the message by now. Otherwise the run
    // goes on.
    const isForbidden = witness.count(CLEANED_UP) > 0
    const { reason, survivors } = isForbidden ? await run.cancel() : await run.wait()
    assertGone(witness)
    assert.deepEqual([reason, survivors], [isForbidden ? 'manual-cancel' : 'lost', []])
    assert.deepEqual(supervisor.list(), [])
  })

  test('cannot trace the keeper without privileges', { ...options, skip: withoutUsers }, async (t) => {
    const path = registryOf(USER_A)
    const bot = await startBot(t, path)
    await bot.ask('become', USER_A)
    const witness = openWitness(t)
    for (const it of [dirname(witness.path), witness.path]) chownSync(it, USER_A, USER_A)
    const { runId, pid } = await bot.ask('spawn', program('forges-its-end'), [witness.path, forgedEnd()])
    await witness.ready(1)
    assert.equal(witness.count(CLEANED_UP), 1, 'the command could trace its keeper')
    assert.equal(await bot.ask('state', runId), 'running')
    // The command itself can be traced by its user, like any other process of that user.
    assert.equal(ownerOf(`/proc/${pid}/environ`), USER_A)
    assert.equal(ownerOf(`/proc/${statOf(pid).parent}/environ`), 0)
    assert.equal((await bot.ask('cancel', runId)).outcome, 'cancelled')
    assertGone(witness)
  })
})

const ownerOf = (path) => Number(execFileSync('stat', ['-c', '%u', path], { encoding: 'utf8' }))
