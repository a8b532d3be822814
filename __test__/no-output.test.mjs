// noOutputTimeoutMs: what counts as output, whoever reads it, and however busy the bot is.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, openSync, readFileSync } from 'node:fs'
import { appendFile } from 'node:fs/promises'
import { devNull } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as passing } from 'node:timers/promises'
import {
  assertAlive,
  assertGone,
  freshRegistry,
  startBot,
  stateOf,
  supervise,
  until,
} from './support/bots.mjs'
import {
  assertSilenced,
  FOR_EVER,
  LONG_MS,
  SILENCE_MS,
  silent,
  standing,
  talking,
} from './support/deadlines.mjs'
import { program } from './support/fixtures.mjs'
import {
  isWindows,
  linuxOnly,
  NO_PROC,
  NO_STOPPING,
  notUnderWine,
  posixOnly,
  WINE_CANNOT_ASK,
} from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
// They wait most of the time.
const together = { timeout: 600_000, concurrency: 8 }
const quiet = { noOutputTimeoutMs: SILENCE_MS }

/** More than any pipe holds, as fast as it can. */
const flooding = ['sh', ['-c', 'exec 3>"$0"; printf r >&3; exec yes']]

/** It goes on as if nothing were wrong, and ends only when it is cancelled. */
async function assertUndisturbed({ child, here, witness }) {
  assertAlive(witness)
  assert.equal(child.state, 'running')
  assert.equal((await child.cancel({ graceMs: 5000 })).reason, 'manual-cancel')
  assertGone(witness)
  assert.equal(here.metrics().run_timeout_total['no-output'], 0)
}

describe('ended is', together, () => {
  test('a run that says nothing', options, async (t) => {
    const run = await standing(t, silent(), quiet)
    run.child.stdout.resume()
    await assertSilenced(run)
    assert.equal(run.here.metrics().run_timeout_total['no-output'], 1)
  })

  test('one that says nothing, and nobody would have listened', options, async (t) => {
    await assertSilenced(await standing(t, silent(), quiet))
  })

  for (const [what, fd] of [
    ['stdout', 1],
    ['stderr', 2],
  ]) {
    test(`one that has stopped to talk on ${what}, and not before`, options, async (t) => {
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

  test('one that has stopped to talk to nobody', options, async (t) => {
    const run = await standing(t, talking(1, SILENCE_MS / 3, 6), quiet)
    const { durationMs } = await assertSilenced(run)
    assert.ok(durationMs >= (SILENCE_MS * 5) / 3 + SILENCE_MS - 1, `${durationMs} ms`)
  })

  test('one whose stream was paused, once that is read to its end', options, async (t) => {
    const run = await standing(t, talking(1, 1, 400), quiet)
    run.child.stdout.pause()
    await passing(LONG_MS)
    run.child.stdout.resume()
    await assertSilenced(run)
  })

  test(
    'the whole tree, and after its grace also what refuses',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const refuses = [program('ignores-sigterm'), []]
      const run = await standing(t, refuses, { ...quiet, ready: 2, graceMs: 200 })
      const { durationMs, signal } = await assertSilenced(run)
      assert.equal(signal, 'SIGKILL')
      assert.ok(durationMs >= SILENCE_MS + 199, `${durationMs} ms`)
    },
  )

  test('one that talks to a file, if it says nothing on stderr', options, async (t) => {
    const file = openSync(join(freshRegistry(), '..', '..', 'out'), 'w')
    const run = await standing(t, talking(1), { ...quiet, stdio: ['ignore', file, 'pipe'] })
    await assertSilenced(run)
  })
})

describe('left alone is', together, () => {
  for (const [what, fd] of [
    ['stdout', 1],
    ['stderr', 2],
  ]) {
    test(`one that talks on ${what}`, options, async (t) => {
      const run = await standing(t, talking(fd), quiet)
      run.child[what].resume()
      await passing(LONG_MS)
      await assertUndisturbed(run)
    })
  }

  test('one that talks to nobody', options, async (t) => {
    const run = await standing(t, talking(1), quiet)
    await passing(LONG_MS)
    await assertUndisturbed(run)
  })

  test('one that talks into a stream that is paused', options, async (t) => {
    const run = await standing(t, talking(1), quiet)
    run.child.stdout.pause()
    await passing(LONG_MS)
    await assertUndisturbed(run)
  })

  test(
    'one that cannot write because the stream is paused and full',
    linuxOnly(NO_PROC, options),
    async (t) => {
      const run = await standing(t, flooding, quiet)
      run.child.stdout.pause()
      await until(() => stateOf(run.child.pid) === 'S', 'it is stuck')
      await passing(LONG_MS)
      assert.equal(stateOf(run.child.pid), 'S')
      await assertUndisturbed(run)
    },
  )

  test('one that cannot write because a slow reader holds it up', options, async (t) => {
    const run = await standing(t, flooding, quiet)
    const reading = (async () => {
      for await (const _ of run.child.stdout) await passing(SILENCE_MS / 3)
    })()
    await passing(LONG_MS)
    await assertUndisturbed(run)
    run.child.stdout.destroy()
    await reading.catch(() => {})
  })

  test('any run without that deadline', options, async (t) => {
    const run = await standing(t, silent(), { noOutputTimeoutMs: 0 })
    await passing(300)
    await assertUndisturbed(run)
  })
})

describe('refused, and nothing is started, without output to be observed:', () => {
  const here = supervise(freshRegistry())
  const file = openSync(devNull, 'w')
  const rows = {
    "'ignore'": 'ignore',
    "'inherit'": 'inherit',
    files: ['pipe', file, file],
    'neither stdout nor stderr': ['pipe', 'ignore', 'inherit', 'pipe'],
    'IPC only': ['ignore', 'ignore', 'ignore', 'ipc'],
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
    test(`${name} that is no duration`, options, () => {
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
  /** A run of another bot, whose event loop is then blocked, until it is let go. */
  async function blocked(t, [command, args], more) {
    const bot = await startBot(t, freshRegistry())
    const witness = openWitness(t)
    const wish = { stdio: 'pipe', graceMs: FOR_EVER, ...more }
    const { pid, runId } = await bot.ask('spawn', command, [witness.path, ...args], wish)
    await bot.ask('read', runId)
    await witness.ready(1)
    const [held, begun] = ['held', 'begun'].map((name) => join(witness.dir, name))
    if (!isWindows) execFileSync('mkfifo', [held])
    const block = bot.ask('blockUntil', held, begun)
    await until(() => existsSync(begun), 'it is blocked')
    const release = async () => {
      await appendFile(held, 'x')
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

  test('does not delay a no-output deadline', options, async (t) => {
    const { bot, release, runId, witness } = await blocked(t, silent(), quiet)
    await witness.gone(60_000)
    await release()
    assert.equal((await bot.ask('wait', runId)).reason, 'no-output-timeout')
  })

  test('does not lose a run that talks all the while', options, async (t) => {
    const { bot, release, runId, witness } = await blocked(t, talking(1), quiet)
    await passing(LONG_MS)
    assertAlive(witness)
    await release()
    assert.equal(await bot.ask('state', runId), 'running')
    assert.equal((await bot.ask('cancelRun', runId, { graceMs: 5000 })).reason, 'manual-cancel')
  })

  test(
    'does not lose a run whose last words wait for it, until they have been read',
    posixOnly(NO_STOPPING, options),
    async (t) => {
      const { bot, pid, release, runId, witness } = await blocked(t, talking(1), quiet)
      const before = writtenBy(pid)
      await until(() => writtenBy(pid) > before, 'there are words that the bot has not read')
      process.kill(pid, 'SIGSTOP')
      await passing(LONG_MS)
      assertAlive(witness)
      await release()
      assert.equal((await bot.ask('wait', runId)).reason, 'no-output-timeout')
      assertGone(witness)
    },
  )

  test('busy for a second, again and again', options, async (t) => {
    const bot = await startBot(t, freshRegistry())
    const witness = openWitness(t)
    const [command, args] = talking(2, 20)
    const wish = { stdio: 'pipe', graceMs: FOR_EVER, noOutputTimeoutMs: 800 }
    const { runId } = await bot.ask('spawn', command, [witness.path, ...args], wish)
    await bot.ask('read', runId)
    await witness.ready(1)
    for (let i = 0; i < 3; i++) await bot.ask('spin', 1000)
    assertAlive(witness)
    assert.equal((await bot.ask('cancelRun', runId, { graceMs: 5000 })).reason, 'manual-cancel')
  })
})
