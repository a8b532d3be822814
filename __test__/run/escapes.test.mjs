// Processes that outlive the root: ended and listed by default, kept and owned with onLeaderExit
// 'keep', left alone if they were released.
// hostile-trees.test.mjs checks that the escapes of every hostile tree are listed.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
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
} from '../support/bots.mjs'
import { standing } from '../support/deadlines.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { assert, describe, openWitness, options, program, test, together } from '../support/prelude.mjs'
import { isWindows, linuxOnly, NO_PROC, NO_SESSIONS, posixOnly } from '../support/system.mjs'

const daemon = () => [program('double-fork-daemon'), []]

describe('a daemon that outlives the root', posixOnly(NO_SESSIONS, together), () => {
  test('is an escape if the root exited by itself: reported, counted, and ended', options, async (t) => {
    const { child, here, witness } = await standing(t, daemon(), { ready: 2 })
    child.stdin.end()
    const exit = await child.wait()
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.exitCode, exit.escaped.length], ['ownership-escape', 0, 1])
    const [event] = here.events.filter(({ type }) => type === 'escape')
    assert.equal(event.escaped, exit.escaped)
    assert.equal(here.metrics().run_ownership_escape_total, 1)
  })

  test('is an escape also if a signal ended the root', options, async (t) => {
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
    test(`is no escape if the run was ended: ${what}`, options, async (t) => {
      const { child, here, witness } = await standing(t, daemon(), { ready: 2, ...more })
      act(child)
      const exit = await child.wait()
      assertGone(witness)
      assert.deepEqual([exit.reason, exit.escaped], [what, []])
      assert.equal(here.metrics().run_ownership_escape_total, 0)
      assert.ok(here.events.every(({ type }) => type !== 'escape'))
    })
  }

  test(
    "is no escape if a cancel follows the exit of the root with onLeaderExit 'keep'",
    options,
    async (t) => {
      const { child, witness } = await standing(t, daemon(), { ready: 2, onLeaderExit: 'keep' })
      child.stdin.end()
      await once(child, 'exit')
      const exit = await child.cancel()
      assertGone(witness)
      assert.deepEqual([exit.reason, exit.exitCode, exit.escaped], ['manual-cancel', 0, []])
    },
  )
})

describe("with onLeaderExit: 'keep', after the exit of the root,", together, () => {
  /** Starts a run in another bot, and kills its root. Its daemon lives on. */
  async function runWithoutRoot(t, more) {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const tree = treeNamed('double-fork-daemon')
    const [command, args] = tree.command(witness.path)
    const spawnOptions = {
      stdio: 'ignore',
      onLeaderExit: 'keep',
      graceMs: 300,
      sessionId: 'the-session',
      ...more,
    }
    const { runId, pid } = await bot.ask('spawn', command, args, spawnOptions)
    await witness.ready(tree.ready)
    process.kill(pid, 'SIGKILL')
    await gone(pid)
    const here = supervise(path)
    await until(() => here.list({ runId })[0]?.state === 'running', 'the registry entry is written')
    // On Windows, without root and bot, only the members in the registry entry can be found.
    const isRecorded = () => here.list({ runId })[0].members?.some((member) => isSameProcess(member))
    if (isWindows && more?.onOwnerExit === 'keep')
      await until(isRecorded, 'the registry entry lists the daemon')
    return { bot, here, path, pid, runId, witness }
  }

  test('the run stays in the registry and in list(), as running', options, async (t) => {
    const { bot, here, path, pid, runId, witness } = await runWithoutRoot(t)
    await fileHas(path, 1)
    assertAlive(witness)
    const [record] = here.list({ sessionId: 'the-session' })
    assert.deepEqual([record.runId, record.pid, record.state], [runId, pid, 'running'])
    assert.equal(await bot.ask('state', runId), 'running')
  })

  test('another process can cancel the run, and its bot gets the result', options, async (t) => {
    const { bot, path, runId, witness } = await runWithoutRoot(t)
    const [result] = await inAScript(path, 'cancel', { sessionId: 'the-session' })
    assertGone(witness)
    assert.deepEqual([result.outcome, result.exits[0].survivors], ['cancelled', []])
    assert.equal((await bot.ask('wait', runId)).reason, 'manual-cancel')
    await fileHas(path, 0)
  })

  test('the run ends with its bot', options, async (t) => {
    const { bot, witness } = await runWithoutRoot(t)
    await bot.kill()
    await witness.gone(60_000)
  })

  test('the next bot adopts and cancels what a dead bot has kept', options, async (t) => {
    const { bot, here, path, runId, witness } = await runWithoutRoot(t, { onOwnerExit: 'keep' })
    await bot.kill()
    assertAlive(witness)
    const run = await here.adopt(runId)
    assert.equal(run.state, 'running')
    const exit = await run.cancel()
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.survivors], ['manual-cancel', []])
    await fileHas(path, 0)
  })

  test('a reaper ends the kept run if no bot adopts it', options, async (t) => {
    const { bot, here, pid, witness } = await runWithoutRoot(t, { onOwnerExit: 'keep' })
    await bot.kill()
    assertAlive(witness)
    assert.deepEqual((await here.reapOrphans()).killed, [pid])
    assertGone(witness)
  })
})

describe('a cancel of a registered process', together, () => {
  /**
   * Starts a process without a keeper, and registers it. Its escaped descendants have no subreaper.
   */
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
    'leaves a descendant alone that has lost environment, group, session and parent',
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

  test('ends every descendant that has kept one of these', options, async (t) => {
    const { here, runId, witness } = await registered(t, 'tree-of-100', 100)
    await here.cancel(runId)
    assertGone(witness)
  })
})
