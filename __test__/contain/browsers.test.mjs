// A browser and its helpers end at each stage of the browser's life, for each way in which a run
// can end. Two independent checks prove it: the pipe that they have as stderr, and a search for
// processes that name the profile.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { assertAlive, assertGone, freshRegistry, startBot, supervise } from '../support/bots.mjs'
import { openProfile, stages, starts, withoutBrowser } from '../support/browser.mjs'
import { assert, describe, openWitness, test } from '../support/prelude.mjs'

const options = { timeout: 180_000, skip: withoutBrowser }
const together = { ...options, concurrency: 2 }

/** Only the keepers end the run here, and a busy machine delays them. */
const GONE_MS = 60_000

/**
 * Time left of the deadline when the browser reaches its stage: longer than a busy machine delays
 * this test.
 */
const LEFT_MS = 10_000

const LEAVES_FIRST = 'by a wrapper that leaves first'
const DETACHES = 'by a launcher that detaches it'

/** The command to start, with its options. */
function prepare(t, start) {
  const profile = openProfile(t)
  const witness = openWitness(t)
  const [command, ...args] = starts[start](profile.command)
  const onLeaderExit = start === LEAVES_FIRST ? 'keep' : 'kill'
  return { profile, witness, command, args, runOptions: { env: profile.env, onLeaderExit } }
}

/** Starts a run of this process. */
function startRun(t, start, more) {
  const { profile, witness, command, args, runOptions } = prepare(t, start)
  const stdio = ['pipe', witness.writeEnd, witness.writeEnd]
  const child = supervise(freshRegistry()).spawnOwned(command, args, { ...runOptions, stdio, ...more })
  witness.release()
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  return { child, profile, witness }
}

/** Starts a run of another bot. */
async function startRunInBot(t, start) {
  const path = freshRegistry()
  const bot = await startBot(t, path)
  const { profile, witness, command, args, runOptions } = prepare(t, start)
  const stdio = ['pipe', { file: witness.path }, { file: witness.path }]
  const { pid } = await bot.ask('spawn', command, args, { ...runOptions, stdio })
  witness.release()
  return { bot, path, pid, profile, witness }
}

function assertOver({ profile, witness }) {
  assertGone(witness)
  profile.assertUnused()
}

function assertEnded(run, { reason, survivors }, expected) {
  assertOver(run)
  assert.deepEqual([reason, survivors], [expected, []])
}

/** Extends the deadline until the browser has reached its stage. */
async function postponeDeadline({ child }, arrived) {
  let from = performance.now()
  const timer = setInterval(() => {
    const now = performance.now()
    if (child.extendDeadline(now - from)) from = now
  }, 50)
  const over = child.wait().then(({ message }) => assert.fail(`the run ended too early: ${message}`))
  over.catch(() => {})
  await Promise.race([arrived, over]).finally(() => clearInterval(timer))
}

const endings = {
  async 'a cancel'(t, start, arrival) {
    const run = startRun(t, start)
    await arrival(run.profile)
    assertEnded(run, await run.child.cancel(), 'manual-cancel')
  },

  async 'a SIGKILL to its bot'(t, start, arrival) {
    const run = await startRunInBot(t, start)
    await arrival(run.profile)
    await run.bot.kill()
    await run.witness.gone(GONE_MS)
    assertOver(run)
  },

  async 'the next bot, after its bot and all keepers were killed'(t, start, arrival) {
    const run = await startRunInBot(t, start)
    await arrival(run.profile)
    await run.bot.killWithHelpers()
    const { killed, skipped, failed } = await supervise(run.path).reapOrphans()
    assertOver(run)
    assert.deepEqual([killed, skipped, failed], [[run.pid], [], []])
  },
}

describe('a browser and all its helpers are ended by', together, () => {
  for (const [ending, end] of Object.entries(endings)) {
    for (const [stage, arrival] of Object.entries(stages))
      test(`${ending}, ${stage}`, options, (t) => end(t, 'directly', arrival))

    for (const start of Object.keys(starts).slice(1))
      test(`${ending}, started ${start}`, options, (t) => end(t, start, stages['with a page']))
  }
})

// These tests mostly wait. A deadline ends a tree as a cancel does, so the stages between are left
// out.
describe('a deadline ends a browser and all its helpers,', { ...options, concurrency: 5 }, () => {
  async function end(t, start, arrival) {
    const run = startRun(t, start, { timeoutMs: LEFT_MS })
    await postponeDeadline(run, arrival(run.profile))
    assertEnded(run, await run.child.wait(), 'overall-timeout')
  }

  for (const stage of ['at once', 'with a page'])
    test(stage, options, (t) => end(t, 'directly', stages[stage]))

  for (const start of Object.keys(starts).slice(1))
    test(`started ${start}`, options, (t) => end(t, start, stages['with a page']))
})

describe('after the process that started it exits,', together, () => {
  for (const start of ['by a shell', DETACHES])
    test(`a browser started ${start} is ended and reported as an escape`, options, async (t) => {
      const run = startRun(t, start)
      await stages['with a page'](run.profile)
      run.child.stdin.end()
      const exit = await run.child.wait()
      assertEnded(run, exit, 'ownership-escape')
      assert.equal(exit.exitCode, 0)
      assert.ok(
        exit.escaped.some(({ command }) => command.startsWith('chrome_crashpad')),
        JSON.stringify(exit.escaped),
      )
    })

  for (const [stage, arrival] of Object.entries(stages))
    test(`no process of a browser is left, ${stage}`, options, async (t) => {
      const run = startRun(t, 'by a shell')
      await arrival(run.profile)
      run.child.stdin.end()
      const { exitCode, survivors } = await run.child.wait()
      assertOver(run)
      assert.deepEqual([exitCode, survivors], [0, []])
    })

  test('no process is left of a browser that has not started yet', options, async (t) => {
    const run = startRun(t, LEAVES_FIRST, { onLeaderExit: 'kill' })
    const { exitCode, survivors } = await run.child.wait()
    assertOver(run)
    assert.deepEqual([exitCode, survivors], [0, []])
  })

  test(
    'a browser that finishes its task writes the same output as under child_process',
    options,
    async (t) => {
      const reference = openProfile(t)
      const [command, ...args] = reference.task
      const expected = await promisify(execFile)(command, args, { env: reference.env })
      assert.match(expected.stdout, /<title>owned/)

      const profile = openProfile(t)
      const { env, task } = profile
      const child = supervise(freshRegistry()).spawnOwned(task[0], task.slice(1), { env })
      child.stderr.resume()
      const [text, { exitCode }] = await Promise.all([child.stdout.toArray(), child.wait()])
      profile.assertUnused()
      assert.deepEqual([Buffer.concat(text).toString(), exitCode], [expected.stdout, 0])
    },
  )
})

describe('for comparison, child_process and a signal to the group', together, () => {
  test('leave all processes of a detached browser alive', options, async (t) => {
    const { profile, witness, command, args, runOptions } = prepare(t, DETACHES)
    const stdio = ['pipe', witness.writeEnd, witness.writeEnd]
    const child = spawn(command, args, { detached: true, stdio, env: runOptions.env })
    witness.release()
    await stages['with a page'](profile)
    process.kill(-child.pid, 'SIGKILL')
    await once(child, 'exit')
    assertAlive(witness)
    assert.ok(await profile.hasPage(), 'the browser still works')
    assert.ok(profile.helpers('--type=renderer').length > 0)
  })
})
