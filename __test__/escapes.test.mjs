// Processes that leave: ended and named if nobody declared them, kept and still ours if somebody did, left alone if they were
// released. That every hostile tree's escapes are listed is in hostile-trees.test.mjs.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { isSameProcess } from 'spawn-owned'
import {
  assertAlive,
  assertGone,
  fileHas,
  freshRegistry,
  gone,
  inAScript,
  startBot,
  supervise,
  until,
} from './support/bots.mjs'
import { standing } from './support/deadlines.mjs'
import { program } from './support/fixtures.mjs'
import { treeNamed } from './support/hostile-trees.mjs'
import { isWindows, linuxOnly, NO_PROC, NO_SESSIONS, posixOnly } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 4 }
const daemon = () => [program('double-fork-daemon'), []]

describe('a run that has left somebody behind', posixOnly(NO_SESSIONS, together), () => {
  test('is an escape if it has ended by itself: told, counted, and ended', options, async (t) => {
    const { child, here, witness } = await standing(t, daemon(), { ready: 2 })
    child.stdin.end()
    const exit = await child.wait()
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.exitCode, exit.escaped.length], ['ownership-escape', 0, 1])
    const [told] = here.events.filter(({ type }) => type === 'escape')
    assert.equal(told.escaped, exit.escaped)
    assert.equal(here.metrics().run_ownership_escape_total, 1)
  })

  test('is an escape also if a signal has ended it', options, async (t) => {
    const { child, witness } = await standing(t, daemon(), { ready: 2 })
    process.kill(child.pid, 'SIGKILL')
    const exit = await child.wait()
    assertGone(witness)
    const { reason, signal, message } = exit
    assert.deepEqual([reason, signal], ['ownership-escape', 'SIGKILL'])
    assert.equal(message, 'ended by SIGKILL; 1 process that had left its session outlived it')
  })

  for (const [what, more, act] of [
    ['manual-cancel', {}, (child) => child.cancel()],
    ['overall-timeout', { timeoutMs: 2000 }, () => {}],
    ['no-output-timeout', { noOutputTimeoutMs: 2000 }, () => {}],
  ]) {
    test(`is none if the run was ended: ${what}`, options, async (t) => {
      const { child, here, witness } = await standing(t, daemon(), { ready: 2, ...more })
      act(child)
      const exit = await child.wait()
      assertGone(witness)
      assert.deepEqual([exit.reason, exit.escaped], [what, []])
      assert.equal(here.metrics().run_ownership_escape_total, 0)
      assert.ok(here.events.every(({ type }) => type !== 'escape'))
    })
  }

  test('is none if a cancel comes after the root has left and others were declared', options, async (t) => {
    const { child, witness } = await standing(t, daemon(), { ready: 2, onLeaderExit: 'keep' })
    child.stdin.end()
    await once(child, 'exit')
    const exit = await child.cancel()
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.exitCode, exit.escaped], ['manual-cancel', 0, []])
  })
})

describe("onLeaderExit: 'keep', when the root has left", together, () => {
  /** A run of another bot whose root is gone, and whose daemon is not. */
  async function left(t, more) {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const tree = treeNamed('double-fork-daemon')
    const [command, args] = tree.command(witness.path)
    const wish = { stdio: 'ignore', onLeaderExit: 'keep', graceMs: 300, sessionId: 'the-session', ...more }
    const { runId, pid } = await bot.ask('spawn', command, args, wish)
    await witness.ready(tree.ready)
    process.kill(pid, 'SIGKILL')
    await gone(pid)
    const here = supervise(path)
    await until(() => here.list({ runId })[0]?.state === 'running', 'it is on record')
    // Without root and bot nobody is found there who was not written down.
    const isNoted = () => here.list({ runId })[0].members?.some((member) => isSameProcess(member))
    if (isWindows && more?.onOwnerExit === 'keep') await until(isNoted, 'the daemon is on record')
    return { bot, here, path, pid, runId, witness }
  }

  test('it stays recorded and listed, as running', options, async (t) => {
    const { bot, here, path, pid, runId, witness } = await left(t)
    await fileHas(path, 1)
    assertAlive(witness)
    const [record] = here.list({ sessionId: 'the-session' })
    assert.deepEqual([record.runId, record.pid, record.state], [runId, pid, 'running'])
    assert.equal(await bot.ask('state', runId), 'running')
  })

  test('another process cancels it, and its bot hears of it', options, async (t) => {
    const { bot, path, runId, witness } = await left(t)
    const [result] = await inAScript(path, 'cancel', { sessionId: 'the-session' })
    assertGone(witness)
    assert.deepEqual([result.outcome, result.exits[0].survivors], ['cancelled', []])
    assert.equal((await bot.ask('wait', runId)).reason, 'manual-cancel')
    await fileHas(path, 0)
  })

  test('its bot dies, and it goes too', options, async (t) => {
    const { bot, witness } = await left(t)
    await bot.kill()
    await witness.gone(60_000)
  })

  test(
    'its bot dies and it was to be kept: the next one adopts what is left, and cancels it',
    options,
    async (t) => {
      const { bot, here, path, runId, witness } = await left(t, { onOwnerExit: 'keep' })
      await bot.kill()
      assertAlive(witness)
      const run = await here.adopt(runId)
      assert.equal(run.state, 'running')
      const exit = await run.cancel()
      assertGone(witness)
      assert.deepEqual([exit.reason, exit.survivors], ['manual-cancel', []])
      await fileHas(path, 0)
    },
  )

  test('it is reaped if nobody adopts it', options, async (t) => {
    const { bot, here, pid, witness } = await left(t, { onOwnerExit: 'keep' })
    await bot.kill()
    assertAlive(witness)
    assert.deepEqual((await here.reapOrphans()).killed, [pid])
    assertGone(witness)
  })
})

describe('released', together, () => {
  /** Started by other means, and registered. Whoever leaves it has no keeper to come back to. */
  async function registered(t, name, ready) {
    const here = supervise(freshRegistry())
    const witness = openWitness(t)
    const child = spawn(program(name), [witness.path], { detached: true, stdio: 'ignore' })
    t.after(() => child.kill('SIGKILL'))
    await witness.ready(ready)
    const { runId } = here.registerProcess({ pid: child.pid, graceMs: 300 })
    return { child, here, runId, witness }
  }

  test(
    'a descendant without the environment, the group, the session and a parent is left alone',
    linuxOnly(NO_PROC, options),
    async (t) => {
      const { child, here, runId, witness } = await registered(t, 'cleared-environment', 2)
      const ended = once(child, 'exit')
      const { outcome, exits } = await here.cancel(runId)
      assert.deepEqual([outcome, exits[0].survivors], ['cancelled', []])
      assert.deepEqual(await ended, [null, 'SIGTERM'])
      assertAlive(witness)
      assert.equal(witness.holders().split('\n').length, 1)
    },
  )

  test('one that has kept any of that is not', options, async (t) => {
    const { here, runId, witness } = await registered(t, 'tree-of-100', 100)
    await here.cancel(runId)
    assertGone(witness)
  })
})
