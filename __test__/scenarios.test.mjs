// The eight scenarios that every way to run a command must pass, on every system. What differs between the ways is in
// support/modes.mjs.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import {
  assertAlive,
  assertGone,
  fileHas,
  freshRegistry,
  startBot,
  supervise,
  until,
} from './support/bots.mjs'
import { program, shellScript } from './support/fixtures.mjs'
import { hostileTrees, treeNamed } from './support/hostile-trees.mjs'
import { converse, modes } from './support/modes.mjs'
import { assertReport, crashed, owned } from './support/orphans.mjs'
import {
  GRACE_FOR_ALL_MS,
  isWine,
  NO_PTY_WITHOUT_BOT,
  NO_STOPPING,
  notUnderWine,
  posixOnly,
  WINE_CONNECTS_NO_STREAMS,
} from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 4 }
const FOR_EVER = 1e8

const wrappers = hostileTrees.filter(({ name }) => /^(sh|bash|npx)/.test(name))

/** A run of this process with a registry of its own, standing. */
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

/** What was told of the run, in order; output is told as often as it comes. */
const told = ({ here, child }) =>
  here.events.filter(({ runId, type }) => runId === child.runId && type !== 'output').map(({ type }) => type)

/** All is over: nothing exists, the registry knows, and so does whoever listens. */
async function assertOver(run, exit, expected) {
  assertGone(run.witness)
  const { durationMs, runId, ...rest } = exit
  const usual = { timedOut: false, noOutputTimedOut: false, escaped: [], survivors: [] }
  const ended = { exitCode: null, signal: null, ...usual, ...expected }
  // To close a console tells nobody in Wine, but that its input is at its end: then the command leaves by itself.
  if (isWine && run.talk.mode.options.pty && ended.signal) Object.assign(ended, { exitCode: 0, signal: null })
  assert.deepEqual(rest, ended)
  assert.equal(run.child.state, 'exited')
  assert.equal(run.here.metrics().run_exit_total[expected.reason], 1)
  assert.deepEqual(run.here.list(), [])
  await fileHas(run.path, 0)
}

/** For tests of a run that has outlived its bot. */
const outlives = (mode) => posixOnly(mode.options.pty && NO_PTY_WITHOUT_BOT, options)

for (const mode of modes) {
  describe(mode.name, together, () => {
    test('direct-exit', options, async (t) => {
      const run = await standing(t, mode, shellScript('converses', WITNESS), 1)
      run.talk.say('nobody\nleave 7\n')
      const exit = await run.child.wait()
      await assertOver(run, exit, { reason: 'exit', exitCode: 7, message: 'exited with code 7' })
      assert.deepEqual(told(run), ['spawn', 'started', 'exited'])
      assert.deepEqual(await run.here.cancel(run.child), { outcome: 'already-exited', exits: [exit] })
    })

    test('manual-cancel', options, async (t) => {
      const run = await standing(t, mode, ...ofTree(treeNamed('half-setsid')), { graceMs: GRACE_FOR_ALL_MS })
      const { outcome, exits } = await run.here.cancel(run.child.runId)
      assert.equal(outcome, 'cancelled')
      const expected = { reason: 'manual-cancel', signal: 'SIGTERM', message: 'cancelled' }
      await assertOver(run, exits[0], expected)
      assert.deepEqual(exits, [await run.child.wait()])
      assert.deepEqual(told(run), ['spawn', 'started', 'exiting', 'exited'])
    })

    test('overall-timeout', options, async (t) => {
      const deadline = { timeoutMs: 2500, graceMs: 300 }
      const run = await standing(t, mode, ...ofTree(treeNamed('ignores-sigterm')), deadline)
      const exit = await run.child.wait()
      const message = 'turn timed out after 2.5s'
      // Where nobody can be asked there is no grace.
      const signal = isWine ? 'SIGTERM' : 'SIGKILL'
      await assertOver(run, exit, { reason: 'overall-timeout', signal, timedOut: true, message })
      assert.ok(exit.durationMs >= (isWine ? 2499 : 2799), `${exit.durationMs} ms`)
      assert.equal(run.here.metrics().run_timeout_total.overall, 1)
      const { signal: asked, kill } = run.here.metrics().run_cleanup_kill_total
      assert.equal(isWine ? asked + kill : kill, 1)
    })

    test('no-output-timeout', options, async (t) => {
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

    test('pty-interactive', options, async (t) => {
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
        `shell-wrapper-tree, the wrapper leaves first: ${tree.name}`,
        isNode ? notUnderWine(WINE_CONNECTS_NO_STREAMS, options) : options,
        async (t) => {
          const run = await standing(t, mode, ...ofTree(tree))
          run.talk.hangUp()
          const exit = await run.child.wait()
          await assertOver(run, exit, { reason: 'exit', exitCode: 0, message: 'exited with code 0' })
        },
      )

      test(
        `shell-wrapper-tree, cancelled: ${tree.name}`,
        isNode ? notUnderWine(WINE_CONNECTS_NO_STREAMS, options) : options,
        async (t) => {
          const run = await standing(t, mode, ...ofTree(tree))
          const exit = await run.child.cancel()
          assertGone(run.witness)
          assert.deepEqual([exit.reason, exit.survivors], ['manual-cancel', []])
        },
      )
    }

    test('restart-reconcile, after a crash of everything', outlives(mode), async (t) => {
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
    })

    test('restart-reconcile, nothing to be done after a crash of the bot', options, async (t) => {
      const run = await owned(t, mode.options)
      await run.bot.kill()
      await run.witness.gone(10_000)
      const { killed, failed } = await run.next.reapOrphans(process.pid)
      assert.deepEqual([killed, failed], [[], []])
      await fileHas(run.path, 0)
    })

    test('lease-contention, an owner that is heard of keeps its runs', options, async (t) => {
      const run = await owned(t, mode.options)
      const others = [run.next, supervise(run.path)]
      const reports = await Promise.all(others.map((other) => other.reapOrphans({ stealFromLive: true })))
      for (const report of reports) assertReport(report, {})
      assertAlive(run.witness)
      assert.equal(await run.bot.ask('state', run.runId), 'running')
    })

    test('lease-contention, one of several takes what an owner has left', outlives(mode), async (t) => {
      const run = await crashed(t, mode.options)
      const bots = [run.next, supervise(run.path)]
      const reports = await Promise.all(bots.map((bot) => bot.reapOrphans()))
      assertGone(run.witness)
      const killed = reports.flatMap((report) => report.killed)
      assert.deepEqual(killed, [run.pid])
    })

    test('lease-contention, a lease that has run out', posixOnly(NO_STOPPING, options), async (t) => {
      const path = freshRegistry()
      const bot = await startBot(t, path, { leaseMs: 1000 })
      const run = await owned(t, { ...mode.options, bot, path })
      bot.signal('SIGSTOP')
      const expired = () => run.next.list()[0].leaseExpiresAtMs < Date.now()
      await until(expired, 'the lease has run out')
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
    })
  })
}
