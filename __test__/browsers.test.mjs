// A browser and its helpers, ended at every stage of its life, in every way in which a run can end: none of them is left. Two witnesses say
// so that have nothing to do with us: the pipe that they have as stderr, and a look at everybody who names the profile.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { assertAlive, assertGone, freshRegistry, startBot, supervise } from './support/bots.mjs'
import { openProfile, stages, starts, withoutBrowser } from './support/browser.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 180_000, skip: withoutBrowser }
const together = { ...options, concurrency: 2 }

/** Nobody but the keepers does anything about it, and on a busy machine they may have to wait. */
const GONE_MS = 60_000

/** How much time is left of a deadline when the browser has come so far: more than a busy machine keeps us waiting for our turn. */
const LEFT_MS = 10_000

const LEAVES_FIRST = 'by a wrapper that leaves first'
const DETACHES = 'by a launcher that detaches it'

/** What is to be started, and how. */
function prepared(t, start) {
  const profile = openProfile(t)
  const witness = openWitness(t)
  const [command, ...args] = starts[start](profile.command)
  const onLeaderExit = start === LEAVES_FIRST ? 'keep' : 'kill'
  return { profile, witness, command, args, wish: { env: profile.env, onLeaderExit } }
}

/** A run of this process. */
function begun(t, start, more) {
  const { profile, witness, command, args, wish } = prepared(t, start)
  const stdio = ['pipe', witness.writeEnd, witness.writeEnd]
  const child = supervise(freshRegistry()).spawnOwned(command, args, { ...wish, stdio, ...more })
  witness.release()
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  return { child, profile, witness }
}

/** A run of a bot. */
async function begunInABot(t, start) {
  const path = freshRegistry()
  const bot = await startBot(t, path)
  const { profile, witness, command, args, wish } = prepared(t, start)
  const stdio = ['pipe', { file: witness.path }, { file: witness.path }]
  const { pid } = await bot.ask('spawn', command, args, { ...wish, stdio })
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

/** Keeps a deadline this far away until the browser has come so far, whatever that takes. */
async function postponed({ child }, arrived) {
  let from = performance.now()
  const timer = setInterval(() => {
    const now = performance.now()
    if (child.extendDeadline(now - from)) from = now
  }, 50)
  const over = child.wait().then(({ message }) => assert.fail(`it was over too soon: ${message}`))
  over.catch(() => {})
  await Promise.race([arrived, over]).finally(() => clearInterval(timer))
}

const endings = {
  async 'a cancel'(t, start, arrival) {
    const run = begun(t, start)
    await arrival(run.profile)
    assertEnded(run, await run.child.cancel(), 'manual-cancel')
  },

  async 'a SIGKILL of its bot'(t, start, arrival) {
    const run = await begunInABot(t, start)
    await arrival(run.profile)
    await run.bot.kill()
    await run.witness.gone(GONE_MS)
    assertOver(run)
  },

  async 'the next bot, when its own was killed with all keepers'(t, start, arrival) {
    const run = await begunInABot(t, start)
    await arrival(run.profile)
    await run.bot.killWithHelpers()
    const { killed, skipped, failed } = await supervise(run.path).reapOrphans()
    assertOver(run)
    assert.deepEqual([killed, skipped, failed], [[run.pid], [], []])
  },
}

describe('a browser is ended with all of its helpers by', together, () => {
  for (const [ending, end] of Object.entries(endings)) {
    for (const [stage, arrival] of Object.entries(stages))
      test(`${ending}, ${stage}`, options, (t) => end(t, 'directly', arrival))

    for (const start of Object.keys(starts).slice(1))
      test(`${ending}, started ${start}`, options, (t) => end(t, start, stages['with a page']))
  }
})

// They wait for most of their time. What is ended, and how, is decided as for a cancel: the stages between are left out.
describe('a browser is ended with all of its helpers by a deadline,', { ...options, concurrency: 5 }, () => {
  async function end(t, start, arrival) {
    const run = begun(t, start, { timeoutMs: LEFT_MS })
    await postponed(run, arrival(run.profile))
    assertEnded(run, await run.child.wait(), 'overall-timeout')
  }

  for (const stage of ['at once', 'with a page'])
    test(stage, options, (t) => end(t, 'directly', stages[stage]))

  for (const start of Object.keys(starts).slice(1))
    test(`started ${start}`, options, (t) => end(t, start, stages['with a page']))
})

describe('when who has started it is through,', together, () => {
  for (const start of ['by a shell', DETACHES])
    test(`a browser that was started ${start} is ended, and named as an escape`, options, async (t) => {
      const run = begun(t, start)
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
    test(`nothing of a browser stays, ${stage}`, options, async (t) => {
      const run = begun(t, 'by a shell')
      await arrival(run.profile)
      run.child.stdin.end()
      const { exitCode, survivors } = await run.child.wait()
      assertOver(run)
      assert.deepEqual([exitCode, survivors], [0, []])
    })

  test('nothing stays of one that has not even begun', options, async (t) => {
    const run = begun(t, LEAVES_FIRST, { onLeaderExit: 'kill' })
    const { exitCode, survivors } = await run.child.wait()
    assertOver(run)
    assert.deepEqual([exitCode, survivors], [0, []])
  })

  test('a browser that has done its work has said what it says under child_process', options, async (t) => {
    const theirs = openProfile(t)
    const [command, ...args] = theirs.task
    const expected = await promisify(execFile)(command, args, { env: theirs.env })
    assert.match(expected.stdout, /<title>owned/)

    const profile = openProfile(t)
    const { env, task } = profile
    const child = supervise(freshRegistry()).spawnOwned(task[0], task.slice(1), { env })
    child.stderr.resume()
    const [text, { exitCode }] = await Promise.all([child.stdout.toArray(), child.wait()])
    profile.assertUnused()
    assert.deepEqual([Buffer.concat(text).toString(), exitCode], [expected.stdout, 0])
  })
})

describe('beside it, child_process and a signal to the group', together, () => {
  test('leave a browser that was detached, whole', options, async (t) => {
    const { profile, witness, command, args, wish } = prepared(t, DETACHES)
    const stdio = ['pipe', witness.writeEnd, witness.writeEnd]
    const child = spawn(command, args, { detached: true, stdio, env: wish.env })
    witness.release()
    await stages['with a page'](profile)
    process.kill(-child.pid, 'SIGKILL')
    await once(child, 'exit')
    assertAlive(witness)
    assert.ok(await profile.hasPage(), 'it works as before')
    assert.ok(profile.helpers('--type=renderer').length > 0)
  })
})
