// The eight scenarios that every mode of running a command must pass, on every system.
// support/modes.mjs has what differs between the modes.
import {
  assertAlive,
  assertGone,
  fileHas,
  freshRegistry,
  startBot,
  supervise,
  until,
} from '../support/bots.mjs'
import { hostileTrees, treeNamed } from '../support/hostile-trees.mjs'
import { converse, modes } from '../support/modes.mjs'
import { assertReport, crashed, owned } from '../support/orphans.mjs'
import {
  assert,
  describe,
  FOR_EVER,
  openWitness,
  options,
  program,
  shellScript,
  test,
  together,
} from '../support/prelude.mjs'
import {
  GRACE_FOR_ALL_MS,
  isWindows,
  isWine,
  NO_PTY_WITHOUT_BOT,
  NO_STOPPING,
  notUnderWine,
  posixOnly,
  WINE_CONNECTS_NO_STREAMS,
} from '../support/system.mjs'

const wrappers = hostileTrees.filter(({ name }) => /^(sh|bash|npx)/.test(name))

/**
 * Starts a run in this process with its own registry, and waits until all its processes are ready.
 */
async function standing(t, mode, [command, args], ready, more) {
  const path = freshRegistry()
  const here = supervise(path)
  const witness = openWitness(t)
  const all = args.map((arg) => (arg === WITNESS ? witness.path : arg))
  const talk = converse(t, mode, here, command, all, more)
  await witness.ready(ready)
  return { child: talk.child, here, path, talk, witness }
}

const WITNESS = Symbol('the path of the witness')
const ofTree = (tree) => [tree.command(WITNESS), tree.ready]

/** Returns the event types of the run, in order. Without output, whose count depends on timing. */
const eventsOf = ({ here, child }) =>
  here.events.filter(({ runId, type }) => runId === child.runId && type !== 'output').map(({ type }) => type)

/** Checks that no process is left, and that exit, state, metrics and registry agree. */
async function assertOver(run, exit, expected) {
  assertGone(run.witness)
  // Other tests check the leftovers, and what needed SIGKILL.
  const { durationMs, runId, leftovers, forced, ...rest } = exit
  const usual = { timedOut: false, noOutputTimedOut: false, escaped: [], survivors: [] }
  const ended = { ok: false, exitCode: null, signal: null, ...usual, ...expected }
  // Under Wine, closing a console sends no event. The command sees the end of its input and exits
  // by itself.
  if (isWine && run.talk.mode.options.pty && ended.signal) Object.assign(ended, { exitCode: 0, signal: null })
  assert.deepEqual(rest, ended)
  assert.equal(run.child.state, 'exited')
  assert.equal(run.here.metrics().run_exit_total[expected.reason], 1)
  assert.deepEqual(run.here.list(), [])
  await fileHas(run.path, 0)
}

/** Options for tests of a run that outlives its bot. */
const outlives = (mode) => posixOnly(mode.options.pty && NO_PTY_WITHOUT_BOT, options)

for (const mode of modes) {
  describe(`${mode.name}:`, together, () => {
    test('direct-exit: a command that exits leaves no process and no entry', options, async (t) => {
      const run = await standing(t, mode, shellScript('converses', WITNESS), 1)
      run.talk.say('nobody\nleave 7\n')
      const exit = await run.child.wait()
      await assertOver(run, exit, { reason: 'exit', exitCode: 7, message: 'exited with code 7' })
      assert.deepEqual(eventsOf(run), ['spawn', 'started', 'exited'])
      assert.deepEqual(await run.here.cancel(run.child), { outcome: 'already-exited', exits: [exit] })
    })

    test('manual-cancel: a cancel ends the whole tree', options, async (t) => {
      const run = await standing(t, mode, ...ofTree(treeNamed('half-setsid')), { graceMs: GRACE_FOR_ALL_MS })
      const { outcome, exits } = await run.here.cancel(run.child.runId)
      assert.equal(outcome, 'cancelled')
      const expected = { reason: 'manual-cancel', signal: 'SIGTERM', message: 'cancelled' }
      await assertOver(run, exits[0], expected)
      assert.deepEqual(exits, [await run.child.wait()])
      assert.deepEqual(eventsOf(run), ['spawn', 'started', 'exiting', 'exited'])
    })

    test('overall-timeout: timeoutMs ends the tree by SIGKILL after the grace period', options, async (t) => {
      const deadline = { timeoutMs: 2500, graceMs: 300 }
      const run = await standing(t, mode, ...ofTree(treeNamed('ignores-sigterm')), deadline)
      const exit = await run.child.wait()
      const message = 'turn timed out after 2.5s'
      // Wine cannot deliver a request to exit, so there is no grace period.
      const signal = isWine ? 'SIGTERM' : 'SIGKILL'
      await assertOver(run, exit, { reason: 'overall-timeout', signal, timedOut: true, message })
      assert.ok(exit.durationMs >= (isWine ? 2499 : 2799), `${exit.durationMs} ms`)
      assert.equal(run.here.metrics().run_timeout_total.overall, 1)
      const { signal: signalled, kill } = run.here.metrics().run_cleanup_kill_total
      assert.equal(isWine ? signalled + kill : kill, 1)
    })

    test('no-output-timeout: noOutputTimeoutMs ends a command that stops writing', options, async (t) => {
      const talks = [program('talks'), [WITNESS, '1', '200', '4']]
      const run = await standing(t, mode, talks, 1, { noOutputTimeoutMs: 2000, graceMs: FOR_EVER })
      const exit = await run.child.wait()
      const silence = performance.now() - run.talk.lastAt
      const expected = { reason: 'no-output-timeout', signal: 'SIGTERM', timedOut: true }
      const message = 'no output for 2s'
      await assertOver(run, exit, { ...expected, noOutputTimedOut: true, message })
      assert.equal(run.talk.said.match(/word/g).length, 4)
      assert.ok(silence >= 2000 && exit.durationMs >= 2600, `${silence} of ${exit.durationMs} ms`)
      assert.equal(run.here.metrics().run_timeout_total['no-output'], 1)
    })

    test('pty-interactive: bot and command exchange lines', options, async (t) => {
      const deadlines = { timeoutMs: 50_000, noOutputTimeoutMs: 30_000 }
      const run = await standing(t, mode, shellScript('converses', WITNESS), 1, deadlines)
      await run.talk.hears('who is there?')
      run.talk.say('the bot\n')
      await run.talk.hears('hello the bot')
      for (let i = 0; i < 20; i++) {
        run.talk.say(`line ${i}\n`)
        await run.talk.hears(`you said line ${i}\n`.trimEnd())
      }
      assertAlive(run.witness)
      assert.equal(run.child.state, 'running')
      run.talk.say('leave 3\n')
      const exit = await run.child.wait()
      await assertOver(run, exit, { reason: 'exit', exitCode: 3, message: 'exited with code 3' })
    })

    for (const tree of wrappers) {
      const isNode = mode.options.pty && tree.name.startsWith('npx')
      test(
        `shell-wrapper-tree: the tree ends after the wrapper exits: ${tree.name}`,
        isNode ? notUnderWine(WINE_CONNECTS_NO_STREAMS, options) : options,
        async (t) => {
          const run = await standing(t, mode, ...ofTree(tree))
          run.talk.hangUp()
          const exit = await run.child.wait()
          await assertOver(run, exit, {
            reason: 'exit',
            ok: true,
            exitCode: 0,
            message: 'exited with code 0',
          })
        },
      )

      test(
        `shell-wrapper-tree: a cancel ends the whole tree: ${tree.name}`,
        isNode ? notUnderWine(WINE_CONNECTS_NO_STREAMS, options) : options,
        async (t) => {
          const run = await standing(t, mode, ...ofTree(tree))
          const exit = await run.child.cancel()
          assertGone(run.witness)
          assert.deepEqual([exit.reason, exit.survivors], ['manual-cancel', []])
        },
      )
    }

    test(
      'restart-reconcile: the next bot ends the run after a crash of bot and keeper',
      outlives(mode),
      async (t) => {
        const run = await crashed(t, mode.options)
        assertReport(await run.next.reapOrphans(process.pid), { killed: [run.pid] })
        assertGone(run.witness)
        assertReport(await run.next.reapOrphans(process.pid), {})
        assert.equal(run.next.metrics().run_reconcile_orphans_total, 1)
        const decisions = run.next.events.filter(({ type }) => type === 'reap-decision')
        assert.deepEqual(
          decisions.map(({ runId, outcome }) => [runId, outcome]),
          [[run.runId, 'ended']],
        )
        await fileHas(run.path, 0)
      },
    )

    test(
      'restart-reconcile: the next bot finds nothing to end after a crash of the bot alone',
      options,
      async (t) => {
        const run = await owned(t, mode.options)
        await run.bot.kill()
        await run.witness.gone(10_000)
        // The processes are gone a moment before their keeper has recorded the end.
        const isRecorded = () => run.next.list({ runId: run.runId }).every(({ state }) => state === 'exited')
        if (!isWindows) await until(isRecorded, 'the keeper records the end')
        const { killed, failed } = await run.next.reapOrphans(process.pid)
        assert.deepEqual([killed, failed], [[], []])
        await fileHas(run.path, 0)
      },
    )

    test('lease-contention: an owner that renews its lease keeps its runs', options, async (t) => {
      const run = await owned(t, mode.options)
      const others = [run.next, supervise(run.path)]
      const reports = await Promise.all(others.map((other) => other.reapOrphans({ stealFromLive: true })))
      for (const report of reports) assertReport(report, {})
      assertAlive(run.witness)
      assert.equal(await run.bot.ask('state', run.runId), 'running')
    })

    test(
      'lease-contention: one of several bots takes the runs of a dead owner',
      outlives(mode),
      async (t) => {
        const run = await crashed(t, mode.options)
        const bots = [run.next, supervise(run.path)]
        const reports = await Promise.all(bots.map((bot) => bot.reapOrphans()))
        assertGone(run.witness)
        const killed = reports.flatMap((report) => report.killed)
        assert.deepEqual(killed, [run.pid])
      },
    )

    test(
      'lease-contention: one of several bots takes a run whose lease has expired',
      posixOnly(NO_STOPPING, options),
      async (t) => {
        const path = freshRegistry()
        const bot = await startBot(t, path, { leaseMs: 1000 })
        const run = await owned(t, { ...mode.options, bot, path })
        bot.signal('SIGSTOP')
        const expired = () => run.next.list()[0].leaseExpiresAtMs < Date.now()
        await until(expired, 'the lease has expired')
        assertReport(await run.next.reapOrphans(), {})
        assertAlive(run.witness)
        assert.equal(run.next.metrics().run_lease_steal_total, 0)
        const thieves = [run.next, supervise(path)]
        const reports = await Promise.all(thieves.map((thief) => thief.reapOrphans({ stealFromLive: true })))
        assertGone(run.witness)
        const killed = reports.flatMap((report) => report.killed)
        assert.deepEqual(killed, [run.pid])
        const steals = thieves.map((thief) => thief.metrics().run_lease_steal_total)
        assert.deepEqual(steals.toSorted(), [0, 1])
      },
    )
  })
}
