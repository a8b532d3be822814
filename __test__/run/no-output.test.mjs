// noOutputTimeoutMs: what counts as output, with and without a reader, and while the bot is busy.
import { execFileSync } from 'node:child_process'
import { existsSync, openSync, readFileSync } from 'node:fs'
import { appendFile } from 'node:fs/promises'
import { devNull } from 'node:os'
import { join } from 'node:path'
import { setTimeout as passing } from 'node:timers/promises'
import {
  assertAlive,
  assertGone,
  freshRegistry,
  startBot,
  stateOf,
  supervise,
  until,
} from '../support/bots.mjs'
import {
  assertSilenced,
  FOR_EVER,
  LONG_MS,
  SILENCE_MS,
  silent,
  standing,
  talking,
} from '../support/deadlines.mjs'
import { assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import {
  isWindows,
  linuxOnly,
  NO_PROC,
  NO_STOPPING,
  notUnderWine,
  posixOnly,
  WINE_CANNOT_ASK,
} from '../support/system.mjs'

// These tests wait most of the time.
const together = { timeout: 600_000, concurrency: 8 }
const quiet = { noOutputTimeoutMs: SILENCE_MS }

/** Writes without end: more than any pipe holds. */
const flooding = ['sh', ['-c', 'exec 3>"$0"; printf r >&3; exec yes']]

/** Checks that the run still lives, and ends only by a cancel. */
async function assertUndisturbed({ child, here, witness }) {
  assertAlive(witness)
  assert.equal(child.state, 'running')
  assert.equal((await child.cancel({ graceMs: 5000 })).reason, 'manual-cancel')
  assertGone(witness)
  assert.equal(here.metrics().run_timeout_total['no-output'], 0)
}

describe('noOutputTimeoutMs ends', together, () => {
  test('a run that writes nothing', options, async (t) => {
    const run = await standing(t, silent(), quiet)
    run.child.stdout.resume()
    await assertSilenced(run)
    assert.equal(run.here.metrics().run_timeout_total['no-output'], 1)
  })

  test('a run that writes nothing while the bot does not read', options, async (t) => {
    await assertSilenced(await standing(t, silent(), quiet))
  })

  for (const [what, fd] of [
    ['stdout', 1],
    ['stderr', 2],
  ]) {
    test(`a run only after its last output on ${what}`, options, async (t) => {
      const run = await standing(t, talking(fd, SILENCE_MS / 3, 6), quiet)
      let [words, lastAt] = [0, 0]
      run.child[what].on('data', (text) => {
        words += String(text).match(/word/g).length
        lastAt = performance.now()
      })
      const { durationMs } = await assertSilenced(run)
      const silence = performance.now() - lastAt
      assert.equal(words, 6)
      assert.ok(silence >= SILENCE_MS, `after ${silence} ms`)
      assert.ok(durationMs >= (SILENCE_MS * 5) / 3 + SILENCE_MS - 1, `${durationMs} ms`)
    })
  }

  test('a run that has stopped writing while the bot does not read', options, async (t) => {
    const run = await standing(t, talking(1, SILENCE_MS / 3, 6), quiet)
    const { durationMs } = await assertSilenced(run)
    assert.ok(durationMs >= (SILENCE_MS * 5) / 3 + SILENCE_MS - 1, `${durationMs} ms`)
  })

  test('a run whose stream was paused, after the bot has read all output', options, async (t) => {
    const run = await standing(t, talking(1, 1, 400), quiet)
    run.child.stdout.pause()
    await passing(LONG_MS)
    run.child.stdout.resume()
    await assertSilenced(run)
  })

  test(
    'the whole tree, after the grace period by SIGKILL',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const refuses = [program('ignores-sigterm'), []]
      const run = await standing(t, refuses, { ...quiet, ready: 2, graceMs: 200 })
      const { durationMs, signal } = await assertSilenced(run)
      assert.equal(signal, 'SIGKILL')
      assert.ok(durationMs >= SILENCE_MS + 199, `${durationMs} ms`)
    },
  )

  test('a run that writes to a file and not to stderr', options, async (t) => {
    const file = openSync(join(freshRegistry(), '..', '..', 'out'), 'w')
    const run = await standing(t, talking(1), { ...quiet, stdio: ['ignore', file, 'pipe'] })
    await assertSilenced(run)
  })
})

describe('noOutputTimeoutMs does not end', together, () => {
  for (const [what, fd] of [
    ['stdout', 1],
    ['stderr', 2],
  ]) {
    test(`a run that writes to ${what}`, options, async (t) => {
      const run = await standing(t, talking(fd), quiet)
      run.child[what].resume()
      await passing(LONG_MS)
      await assertUndisturbed(run)
    })
  }

  test('a run that writes while the bot does not read', options, async (t) => {
    const run = await standing(t, talking(1), quiet)
    await passing(LONG_MS)
    await assertUndisturbed(run)
  })

  test('a run that writes into a paused stream', options, async (t) => {
    const run = await standing(t, talking(1), quiet)
    run.child.stdout.pause()
    await passing(LONG_MS)
    await assertUndisturbed(run)
  })

  test(
    'a run that cannot write because the stream is paused and full',
    linuxOnly(NO_PROC, options),
    async (t) => {
      const run = await standing(t, flooding, quiet)
      run.child.stdout.pause()
      await until(() => stateOf(run.child.pid) === 'S', 'the command is blocked')
      await passing(LONG_MS)
      assert.equal(stateOf(run.child.pid), 'S')
      await assertUndisturbed(run)
    },
  )

  test('a run that cannot write because the reader is slow', options, async (t) => {
    const run = await standing(t, flooding, quiet)
    const reading = (async () => {
      for await (const _ of run.child.stdout) await passing(SILENCE_MS / 3)
    })()
    await passing(LONG_MS)
    await assertUndisturbed(run)
    run.child.stdout.destroy()
    await reading.catch(() => {})
  })

  test('a run if it is 0', options, async (t) => {
    const run = await standing(t, silent(), { noOutputTimeoutMs: 0 })
    await passing(300)
    await assertUndisturbed(run)
  })
})

describe('spawnOwned throws and starts nothing for', () => {
  const here = supervise(freshRegistry())
  const file = openSync(devNull, 'w')
  const rows = {
    "noOutputTimeoutMs with 'ignore'": 'ignore',
    "noOutputTimeoutMs with 'inherit'": 'inherit',
    'noOutputTimeoutMs with files': ['pipe', file, file],
    'noOutputTimeoutMs with neither stdout nor stderr': ['pipe', 'ignore', 'inherit', 'pipe'],
    'noOutputTimeoutMs with IPC only': ['ignore', 'ignore', 'ignore', 'ipc'],
  }
  for (const [what, stdio] of Object.entries(rows)) {
    test(what, options, () => {
      assert.throws(() => here.spawnOwned('true', { stdio, noOutputTimeoutMs: 1000 }), {
        code: 'ERR_INVALID_ARG_VALUE',
        message: /options\.noOutputTimeoutMs.*'pipe'/,
      })
      assert.deepEqual([here.list(), here.metrics().run_spawn_total], [[], 0])
    })
  }

  for (const name of ['timeoutMs', 'noOutputTimeoutMs']) {
    test(`a ${name} that is not a duration`, options, () => {
      for (const [value, code] of [
        [-1, 'ERR_OUT_OF_RANGE'],
        [Number.NaN, 'ERR_OUT_OF_RANGE'],
        ['1000', 'ERR_INVALID_ARG_TYPE'],
        [null, 'ERR_INVALID_ARG_TYPE'],
      ]) {
        const refused = { code, message: new RegExp(`options\\.${name}`) }
        assert.throws(() => here.spawnOwned('true', { [name]: value }), refused, String(value))
      }
    })
  }
})

describe('a bot that is busy', together, () => {
  /** Starts a run in another bot, then blocks the event loop of that bot until `release()`. */
  async function blocked(t, [command, args], more) {
    const bot = await startBot(t, freshRegistry())
    const witness = openWitness(t)
    const spawnOptions = { stdio: 'pipe', graceMs: FOR_EVER, ...more }
    const { pid, runId } = await bot.ask('spawn', command, [witness.path, ...args], spawnOptions)
    await bot.ask('read', runId)
    await witness.ready(1)
    const [unblockFile, blockedFile] = ['unblock', 'blocked'].map((name) => join(witness.dir, name))
    if (!isWindows) execFileSync('mkfifo', [unblockFile])
    const block = bot.ask('blockUntil', unblockFile, blockedFile)
    await until(() => existsSync(blockedFile), 'the event loop is blocked')
    const release = async () => {
      await appendFile(unblockFile, 'x')
      await block
    }
    return { bot, pid, release, runId, witness }
  }

  const writtenBy = (pid) => Number(readFileSync(`/proc/${pid}/io`, 'utf8').match(/wchar: (\d+)/)[1])

  test('does not delay an overall deadline', options, async (t) => {
    const { bot, release, runId, witness } = await blocked(t, silent(), { timeoutMs: 2000 })
    await witness.gone(60_000)
    await release()
    assert.equal((await bot.ask('wait', runId)).reason, 'overall-timeout')
  })

  test('does not delay an idle timeout', options, async (t) => {
    const { bot, release, runId, witness } = await blocked(t, silent(), quiet)
    await witness.gone(60_000)
    await release()
    assert.equal((await bot.ask('wait', runId)).reason, 'no-output-timeout')
  })

  test('does not end a run that keeps writing', options, async (t) => {
    const { bot, release, runId, witness } = await blocked(t, talking(1), quiet)
    await passing(LONG_MS)
    assertAlive(witness)
    await release()
    assert.equal(await bot.ask('state', runId), 'running')
    assert.equal((await bot.ask('cancelRun', runId, { graceMs: 5000 })).reason, 'manual-cancel')
  })

  test(
    'does not end a run with unread output until the bot has read it',
    posixOnly(NO_STOPPING, options),
    async (t) => {
      const { bot, pid, release, runId, witness } = await blocked(t, talking(1), quiet)
      const before = writtenBy(pid)
      await until(() => writtenBy(pid) > before, 'the pipe has output that the bot has not read')
      process.kill(pid, 'SIGSTOP')
      await passing(LONG_MS)
      assertAlive(witness)
      await release()
      assert.equal((await bot.ask('wait', runId)).reason, 'no-output-timeout')
      assertGone(witness)
    },
  )

  test('for a second, again and again, does not end a run that keeps writing', options, async (t) => {
    const bot = await startBot(t, freshRegistry())
    const witness = openWitness(t)
    const [command, args] = talking(2, 20)
    const spawnOptions = { stdio: 'pipe', graceMs: FOR_EVER, noOutputTimeoutMs: 800 }
    const { runId } = await bot.ask('spawn', command, [witness.path, ...args], spawnOptions)
    await bot.ask('read', runId)
    await witness.ready(1)
    for (let i = 0; i < 3; i++) await bot.ask('spin', 1000)
    assertAlive(witness)
    assert.equal((await bot.ask('cancelRun', runId, { graceMs: 5000 })).reason, 'manual-cancel')
  })
})
