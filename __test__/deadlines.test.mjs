// Deadlines: who is warned, how they are moved, when they begin to count, and which reason is told when things happen at once.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as passing } from 'node:timers/promises'
import {
  assertAlive,
  assertGone,
  childrenOf,
  entriesOf,
  freshRegistry,
  isHelper,
  startBot,
  stateOf,
  statOf,
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
  NO_KEEPER,
  NO_SIGNALS,
  notUnderWine,
  posixOnly,
  WINE_CANNOT_ASK,
} from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
// They wait most of the time.
const together = { timeout: 600_000, concurrency: 8 }

/** What was told of this type. */
const told = ({ here }, type) => here.events.filter((event) => event.type === type)

describe('deadline-warning', together, () => {
  // The later the machine comes to it, the less time remains; a fifth of this is plenty.
  const limitMs = 5000

  for (const [deadline, name] of [
    ['overall', 'timeoutMs'],
    ['no-output', 'noOutputTimeoutMs'],
  ]) {
    test(`once, when four fifths are over: ${deadline}`, options, async (t) => {
      const run = await standing(t, silent(), { [name]: limitMs })
      let after
      run.here.on('event', ({ type }) => {
        if (type === 'deadline-warning') after = performance.now() - run.from
      })
      await run.child.wait()
      const warnings = told(run, 'deadline-warning')
      assert.equal(warnings.length, 1)
      const [{ runId, pid, remainingMs, ...warning }] = warnings
      assert.deepEqual([runId, pid], [run.child.runId, run.child.pid])
      assert.deepEqual([warning.deadline, warning.limitMs], [deadline, limitMs])
      assert.ok(remainingMs > 0 && remainingMs <= limitMs / 5, `${remainingMs} ms`)
      assert.ok(after >= (limitMs * 4) / 5, `after ${after} ms`)
      const order = run.here.events.map(({ type }) => type)
      assert.deepEqual(order, ['spawn', 'started', 'deadline-warning', 'exiting', 'exited'])
    })

    test(`again, when it was moved: ${deadline}`, options, async (t) => {
      const run = await standing(t, silent(), { [name]: limitMs })
      const warnings = []
      const twice = new Promise((resolve) => {
        run.here.on('event', (event) => {
          if (event.type !== 'deadline-warning') return
          warnings.push(event)
          if (warnings.length === 1) assert.equal(run.child.extendDeadline(limitMs / 2), true)
          else resolve()
        })
      })
      await twice
      assertAlive(run.witness)
      assert.deepEqual(warnings[1].limitMs, limitMs * 1.5)
      assert.ok(warnings[1].remainingMs <= (limitMs * 1.5) / 5)
      await run.child.cancel({ graceMs: 5000 })
    })
  }

  test('not for a run that ends in time', options, async () => {
    const here = supervise(freshRegistry())
    await here.spawnOwned('true', { timeoutMs: limitMs, noOutputTimeoutMs: limitMs }).wait()
    assert.deepEqual(
      here.events.filter(({ type }) => type === 'deadline-warning'),
      [],
    )
  })

  test('again for each silence, if there was output in between', options, async (t) => {
    const everyMs = 2700
    const run = await standing(t, talking(1, everyMs, 3), { noOutputTimeoutMs: 3000 })
    run.child.stdout.resume()
    const exit = await run.child.wait()
    assert.equal(exit.reason, 'no-output-timeout')
    const words = Math.round((exit.durationMs - 3000) / everyMs)
    assert.equal(told(run, 'deadline-warning').length, words + 1)
  })
})

describe('extendDeadline', together, () => {
  test('moves an overall deadline, and the message says by how much', options, async (t) => {
    const run = await standing(t, silent(), { timeoutMs: 2000 })
    assert.equal(run.child.extendDeadline(1000), true)
    assert.equal(run.child.extendDeadline(500), true)
    const exit = await run.child.wait()
    assertGone(run.witness)
    assert.ok(exit.durationMs >= 3499, `${exit.durationMs} ms`)
    assert.deepEqual([exit.reason, exit.message], ['overall-timeout', 'turn timed out after 3.5s'])
  })

  test('moves the end of a silence', options, async (t) => {
    const run = await standing(t, silent(), { noOutputTimeoutMs: 2000 })
    assert.equal(run.child.extendDeadline(1500), true)
    await assertSilenced(run, 3500)
  })

  test('moves both', options, async (t) => {
    const run = await standing(t, silent(), { timeoutMs: 2000, noOutputTimeoutMs: 2000 })
    assert.equal(run.child.extendDeadline(2000), true)
    const { durationMs } = await run.child.wait()
    assert.ok(durationMs >= 3999, `${durationMs} ms`)
  })

  test('for the silence that lasts, not for the next one', options, async (t) => {
    const run = await standing(
      t,
      ['sh', ['-c', 'exec 3>"$0"; printf r >&3; read -r _; echo word; read -r _']],
      {
        noOutputTimeoutMs: SILENCE_MS,
      },
    )
    assert.equal(run.child.extendDeadline(FOR_EVER), true)
    await passing(LONG_MS)
    assertAlive(run.witness)
    run.child.stdin.write('\n')
    await once(run.child.stdout, 'data')
    const from = performance.now()
    await assertSilenced(run)
    assert.ok(performance.now() - from >= SILENCE_MS)
  })

  test('is false for a run that is over, or is being ended', options, async (t) => {
    const run = await standing(t, [program('ignores-sigterm'), []], { ready: 2, timeoutMs: FOR_EVER })
    const cancelled = run.child.cancel({ graceMs: 300 })
    assert.equal(run.child.extendDeadline(FOR_EVER), false)
    await cancelled
    assertGone(run.witness)
    assert.equal(run.child.extendDeadline(FOR_EVER), false)
  })

  test('is false for one that could not be started', options, async () => {
    const here = supervise(freshRegistry())
    const child = here.spawnOwned('/nonexistent', { timeoutMs: 1000 }).on('error', () => {})
    assert.equal(child.extendDeadline(1), false)
    await child.wait()
    assert.equal(child.extendDeadline(1), false)
  })

  test('has something to move, and a duration to move it by', options, async (t) => {
    const { child } = await standing(t, silent())
    assert.throws(() => child.extendDeadline(1000), {
      code: 'ERR_OWNED_NO_DEADLINE',
      message: /timeoutMs.*noOutputTimeoutMs/,
    })
    for (const [ms, code] of [
      [undefined, 'ERR_INVALID_ARG_TYPE'],
      ['5', 'ERR_INVALID_ARG_TYPE'],
      [-1, 'ERR_OUT_OF_RANGE'],
      [Number.NaN, 'ERR_OUT_OF_RANGE'],
    ]) {
      assert.throws(() => child.extendDeadline(ms), { code }, String(ms))
    }
  })
})

describe("Node's timeout", together, () => {
  test('ends the whole tree, with killSignal first', posixOnly(NO_SIGNALS, options), async (t) => {
    const tree = [program('half-setsid'), []]
    const run = await standing(t, tree, { ready: 33, timeout: 3000, killSignal: 'SIGINT' })
    const exit = await run.child.wait()
    assertGone(run.witness)
    assert.deepEqual([exit.reason, exit.signal], ['overall-timeout', 'SIGINT'])
    assert.equal(exit.message, 'turn timed out after 3s')
    assert.equal(run.child.killed, true)
    assert.ok(exit.durationMs >= 2999)
  })

  test('and SIGKILL leaves no grace', options, async (t) => {
    const more = { ready: 2, timeout: 2000, killSignal: 'SIGKILL' }
    const run = await standing(t, [program('ignores-sigterm'), []], more)
    const exit = await run.child.wait()
    assertGone(run.witness)
    assert.deepEqual([exit.reason, exit.signal], ['overall-timeout', 'SIGKILL'])
  })

  test('can be moved too', options, async (t) => {
    const run = await standing(t, silent(), { timeout: 2000 })
    assert.equal(run.child.extendDeadline(1000), true)
    assert.equal((await run.child.wait()).message, 'turn timed out after 3s')
  })
})

describe('a deadline counts from when the command runs', posixOnly(NO_KEEPER, together), () => {
  /** Whoever waits to become the next commands of a bot. */
  const blanksOf = (bot) => childrenOf(bot.pid).flatMap(childrenOf).flatMap(childrenOf).filter(isHelper)

  /** A bot whose next command cannot start, because whoever is to become it was stopped. */
  async function stoppedBeforehand(t) {
    const bot = await startBot(t, freshRegistry())
    const spawn = (more) => bot.ask('spawn', 'sh', ['-c', 'exit 5'], { stdio: 'pipe', ...more })
    // From now on the bot knows that this program can be executed, and does not wait until it is.
    const { runId: first } = await spawn()
    await bot.ask('wait', first)
    const blanks = await until(() => blanksOf(bot).length > 0 && blanksOf(bot), 'somebody waits')
    for (const pid of blanks) {
      process.kill(pid, 'SIGSTOP')
      await until(() => stateOf(pid) === 'T', 'it was stopped')
    }
    return { bot, blanks, spawn }
  }

  test('and nobody can keep it from running by stopping it beforehand', options, async (t) => {
    const { bot, spawn } = await stoppedBeforehand(t)
    const { runId } = await spawn({ timeoutMs: 5000 })
    const { reason, exitCode } = await bot.ask('wait', runId)
    assert.deepEqual([reason, exitCode], ['exit', 5])
  })

  for (const name of ['timeoutMs', 'noOutputTimeoutMs']) {
    test(`a slow start does not use it up: ${name}`, options, async (t) => {
      const { bot, blanks, spawn } = await stoppedBeforehand(t)
      const { runId } = await spawn({ [name]: 300 })
      await passing(900)
      // If this has taken long, the bot has woken its own by now, and that one has come to its end.
      for (const pid of blanks) if (stateOf(pid) === 'T') process.kill(pid, 'SIGCONT')
      const { reason, exitCode } = await bot.ask('wait', runId)
      assert.deepEqual([reason, exitCode], ['exit', 5])
    })
  }
})

test(
  'a keeper that its own command has stopped, and the zygote with it, keeps the deadline',
  posixOnly(NO_KEEPER, options),
  async (t) => {
    const bot = await startBot(t, freshRegistry())
    const witness = openWitness(t)
    const told = join(witness.dir, 'told')
    execFileSync('mkfifo', [told])
    const stopper = 'read -r helpers <"$1"; kill -STOP $helpers; exec 3>"$0"; printf r >&3; exec sleep 60'
    const args = ['-c', stopper, witness.path, told]
    const { pid, runId } = await bot.ask('spawn', 'sh', args, { timeoutMs: 5000 })
    const keeper = statOf(pid).parent
    // The zygote, which would wake it, first.
    const helpers = [statOf(keeper).parent, keeper]
    assert.deepEqual(helpers.map(isHelper), [true, true])
    t.after(() => process.kill(helpers[0], 'SIGCONT'))
    await writeFile(told, `${helpers.join(' ')}\n`)
    await witness.ready(1)
    const { reason, message } = await bot.ask('wait', runId)
    assertGone(witness)
    assert.deepEqual([reason, message], ['overall-timeout', 'turn timed out after 5s'])
  },
)

describe('at the same time:', together, () => {
  test('an exit and a deadline, and the reason is true', options, async () => {
    const here = supervise(freshRegistry())
    const tries = Array.from({ length: 60 }, (_, i) => i)
    const seen = new Map()
    // So far apart that both do happen, and in between so close that they meet.
    const offsets = tries.map((i) => (i === 0 ? -290 : i === 1 ? 5000 : (i % 20) - 10))
    const exits = await Promise.all(
      offsets.map(async (offset) => {
        const ms = 300 + offset
        return await here.spawnOwned('sleep', [`${ms / 1000}`], { timeoutMs: 300, graceMs: FOR_EVER }).wait()
      }),
    )
    for (const { reason, exitCode, signal, timedOut, message } of exits) {
      seen.set(reason, (seen.get(reason) ?? 0) + 1)
      if (reason === 'exit') {
        assert.deepEqual([exitCode, signal, timedOut, message], [0, null, false, 'exited with code 0'])
      } else {
        assert.deepEqual([reason, timedOut, message], ['overall-timeout', true, 'turn timed out after 0.3s'])
        // It may have been faster than the signal that was on its way.
        assert.ok(signal === 'SIGTERM' || exitCode === 0, `${signal} ${exitCode}`)
      }
    }
    assert.ok(seen.get('exit') > 0 && seen.get('overall-timeout') > 0, JSON.stringify([...seen]))
    const { run_exit_total: counted, run_timeout_total: timeouts } = here.metrics()
    assert.deepEqual(
      [counted.exit, counted['overall-timeout']],
      [seen.get('exit'), seen.get('overall-timeout')],
    )
    assert.equal(timeouts.overall, seen.get('overall-timeout'))
  })

  test('an exit and a cancel, and the reason is true', options, async () => {
    const here = supervise(freshRegistry())
    const results = await Promise.all(
      Array.from({ length: 60 }, async (_, i) => {
        const child = here.spawnOwned('sleep', ['0.3'], { stdio: 'ignore' })
        if (i > 0) await passing(i === 1 ? 5000 : 290 + (i % 20))
        return here.cancel(child, { graceMs: FOR_EVER })
      }),
    )
    const seen = new Set()
    for (const { outcome, exits } of results) {
      seen.add(outcome)
      const [{ reason, exitCode, signal }] = exits
      if (outcome === 'already-exited') assert.deepEqual([reason, exitCode, signal], ['exit', 0, null])
      else assert.deepEqual([outcome, reason], ['cancelled', 'manual-cancel'])
    }
    assert.deepEqual(seen, new Set(['cancelled', 'already-exited']))
  })

  test('both deadlines: one of them is the reason', options, async (t) => {
    const run = await standing(t, silent(), { timeoutMs: 2000, noOutputTimeoutMs: 2000 })
    const { reason, message } = await run.child.wait()
    const messages = { 'overall-timeout': 'turn timed out after 2s', 'no-output-timeout': 'no output for 2s' }
    assert.equal(message, messages[reason])
    const { overall, 'no-output': noOutput } = run.here.metrics().run_timeout_total
    assert.deepEqual([overall, noOutput], reason === 'overall-timeout' ? [1, 0] : [0, 1])
  })

  test(
    'a deadline and cancels that come later share one result',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const more = { ready: 2, noOutputTimeoutMs: 2000, graceMs: 1500 }
      const run = await standing(t, [program('ignores-sigterm'), []], more)
      await until(() => run.child.state === 'exiting', 'it is out of time')
      const exits = await Promise.all([
        run.child.cancel({ graceMs: FOR_EVER }),
        run.child.cancel({ reason: 'shutdown' }),
        run.here.cancel(run.child.runId).then((result) => result.exits[0]),
        supervise(run.here.registryPath)
          .cancel(run.child.runId)
          .then(({ exits: [exit] }) => ({ ...exit, durationMs: undefined })),
        run.child.wait(),
      ])
      assertGone(run.witness)
      assert.equal(exits[0].reason, 'no-output-timeout')
      for (const exit of exits) {
        const { durationMs } = exit
        assert.deepEqual({ ...exit, durationMs }, { ...exits[0], durationMs })
      }
      assert.equal(told(run, 'exiting').length, 1)
      assert.equal(told(run, 'exited').length, 1)
    },
  )

  test('a cancel of a run that has just exited says so', options, async () => {
    const here = supervise(freshRegistry())
    for (const target of [(child) => child, ({ runId }) => runId, ({ sessionId }) => ({ sessionId })]) {
      const child = here.spawnOwned('sh', ['-c', 'exit 6'], { sessionId: 'just' })
      const result = new Promise((resolve) => child.on('exit', () => resolve(here.cancel(target(child)))))
      const { outcome, exits } = await result
      assert.equal(outcome, 'already-exited')
      assert.deepEqual(exits.at(-1), await child.wait())
      assert.deepEqual([exits.at(-1).reason, exits.at(-1).exitCode], ['exit', 6])
    }
  })
})

describe('a run that was kept', together, () => {
  async function kept(t, more) {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const wish = { onOwnerExit: 'keep', graceMs: 1000, ...more }
    const { runId } = await bot.ask('spawn', program('stays'), [witness.path], wish)
    await witness.ready(1)
    await until(() => entriesOf(path)[0]?.state === 'running', 'it is on record')
    await bot.kill()
    return { next: supervise(path), path, runId, witness }
  }

  test(
    'is out of time although its bot is dead, and the next one is told the limit',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const { next, path, runId, witness } = await kept(t, { timeoutMs: 2500 })
      await witness.gone(60_000)
      await until(() => entriesOf(path)[0]?.exit, 'its end was written down')
      const exit = await (await next.adopt(runId)).wait()
      assert.deepEqual([exit.reason, exit.timedOut], ['overall-timeout', true])
      assert.equal(exit.message, 'turn timed out after 2.5s')
      assert.ok(exit.durationMs >= 2499, `${exit.durationMs} ms`)
    },
  )

  test('is out of time when it was adopted, and its new owner was warned', options, async (t) => {
    const { next, runId, witness } = await kept(t, { timeoutMs: 8000 })
    const run = await next.adopt(runId)
    const exit = await run.wait()
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.message], ['overall-timeout', 'turn timed out after 8s'])
    const types = next.events.map(({ type }) => type)
    assert.deepEqual(types, ['deadline-warning', 'exiting', 'exited'])
    assert.equal(next.events[0].limitMs, 8000)
  })

  test('can be moved by nobody who has not got the process', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const run = await next.adopt(runId)
    assert.equal(run.extendDeadline, undefined)
    await run.cancel()
    assertGone(witness)
  })
})

test('a deadline that is not reached changes no exit', options, async () => {
  const here = supervise(freshRegistry())
  const deadlines = { timeoutMs: FOR_EVER, noOutputTimeoutMs: FOR_EVER }
  const sh = (line) => here.spawnOwned('sh', ['-c', line], deadlines).wait()
  for (const code of [0, 1, 2, 126, 127, 128, 143, 255]) {
    const { reason, exitCode, signal } = await sh(`exit ${code}`)
    assert.deepEqual([reason, exitCode, signal], ['exit', code, null])
  }
  const signals = ['SIGTERM', 'SIGKILL', 'SIGINT', 'SIGHUP', 'SIGUSR1', 'SIGPIPE', 'SIGALRM']
  for (const name of isWindows ? [] : signals) {
    const { reason, exitCode, signal } = await sh(`kill -${name.slice(3)} $$`)
    assert.deepEqual([reason, exitCode, signal], ['signal', null, name])
  }
})
