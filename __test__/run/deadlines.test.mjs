// Deadlines: the warning, extendDeadline, when the time starts, and the reason if two events happen
// at once.
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
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
} from '../support/bots.mjs'
import { assertSilenced, FOR_EVER, LONG_MS, SILENCE_MS, silent, standing } from '../support/deadlines.mjs'
import { assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import {
  isWindows,
  NO_KEEPER,
  NO_SIGNALS,
  notUnderWine,
  posixOnly,
  WINE_CANNOT_ASK,
} from '../support/system.mjs'

// These tests wait most of the time.
const together = { timeout: 600_000, concurrency: 8 }

/** Returns the events of this type. */
const eventsOf = ({ here }, type) => here.events.filter((event) => event.type === type)

describe('the event deadline-warning', together, () => {
  // A slow machine sends the warning late, so less time remains. A fifth of this limit is enough.
  const limitMs = 5000

  for (const [deadline, name] of [
    ['overall', 'timeoutMs'],
    ['no-output', 'noOutputTimeoutMs'],
  ]) {
    test(`comes once, after four fifths of the limit: ${deadline}`, options, async (t) => {
      const run = await standing(t, silent(), { [name]: limitMs })
      let after
      run.here.on('event', ({ type }) => {
        if (type === 'deadline-warning') after = performance.now() - run.from
      })
      await run.child.wait()
      const warnings = eventsOf(run, 'deadline-warning')
      assert.equal(warnings.length, 1)
      const [{ runId, pid, remainingMs, ...warning }] = warnings
      assert.deepEqual([runId, pid], [run.child.runId, run.child.pid])
      assert.deepEqual([warning.deadline, warning.limitMs], [deadline, limitMs])
      assert.ok(remainingMs > 0 && remainingMs <= limitMs / 5, `${remainingMs} ms`)
      assert.ok(after >= (limitMs * 4) / 5, `after ${after} ms`)
      const order = run.here.events.map(({ type }) => type)
      assert.deepEqual(order, ['spawn', 'started', 'deadline-warning', 'exiting', 'exited'])
    })

    test(`comes again after the deadline was extended: ${deadline}`, options, async (t) => {
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

  test('does not come for a run that ends in time', options, async () => {
    const here = supervise(freshRegistry())
    await here.spawnOwned('true', { timeoutMs: limitMs, noOutputTimeoutMs: limitMs }).wait()
    assert.deepEqual(
      here.events.filter(({ type }) => type === 'deadline-warning'),
      [],
    )
  })

  test('comes once for each idle period', options, async () => {
    const here = supervise(freshRegistry())
    const echo = ['-e', 'process.stdin.pipe(process.stdout)']
    const child = here.spawnOwned(process.execPath, echo, { noOutputTimeoutMs: limitMs })
    let [echoed, warnings] = [0, 0]
    child.stdout.on('data', ({ length }) => {
      // A late echo comes after the timeout, and ends no idle period.
      if (child.state === 'running') echoed += length
    })
    here.on('event', ({ type }) => {
      if (type !== 'deadline-warning') return
      warnings += 1
      // The output that this byte causes ends the idle period.
      if (warnings <= 2) child.stdin.write('x')
    })
    assert.equal((await child.wait()).reason, 'no-output-timeout')
    assert.equal(warnings, echoed + 1)
  })
})

describe('extendDeadline', together, () => {
  test('extends the overall deadline, and the message has the new limit', options, async (t) => {
    const run = await standing(t, silent(), { timeoutMs: 2000 })
    assert.equal(run.child.extendDeadline(1000), true)
    assert.equal(run.child.extendDeadline(500), true)
    const exit = await run.child.wait()
    assertGone(run.witness)
    assert.ok(exit.durationMs >= 3499, `${exit.durationMs} ms`)
    assert.deepEqual([exit.reason, exit.message], ['overall-timeout', 'turn timed out after 3.5s'])
  })

  test('extends the idle timeout', options, async (t) => {
    const run = await standing(t, silent(), { noOutputTimeoutMs: 2000 })
    assert.equal(run.child.extendDeadline(1500), true)
    await assertSilenced(run, 3500)
  })

  test('extends both deadlines', options, async (t) => {
    const run = await standing(t, silent(), { timeoutMs: 2000, noOutputTimeoutMs: 2000 })
    assert.equal(run.child.extendDeadline(2000), true)
    const { durationMs } = await run.child.wait()
    assert.ok(durationMs >= 3999, `${durationMs} ms`)
  })

  test('extends the current idle period, not the next one', options, async (t) => {
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

  test('returns false for a run that has ended or is ending', options, async (t) => {
    const run = await standing(t, [program('ignores-sigterm'), []], { ready: 2, timeoutMs: FOR_EVER })
    const cancelled = run.child.cancel({ graceMs: 300 })
    assert.equal(run.child.extendDeadline(FOR_EVER), false)
    await cancelled
    assertGone(run.witness)
    assert.equal(run.child.extendDeadline(FOR_EVER), false)
  })

  test('returns false for a run that could not be started', options, async () => {
    const here = supervise(freshRegistry())
    const child = here.spawnOwned('/nonexistent', { timeoutMs: 1000 }).on('error', () => {})
    assert.equal(child.extendDeadline(1), false)
    await child.wait()
    assert.equal(child.extendDeadline(1), false)
  })

  test('throws without a deadline and for an invalid duration', options, async (t) => {
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

  test('leaves no grace period with killSignal SIGKILL', options, async (t) => {
    const more = { ready: 2, timeout: 2000, killSignal: 'SIGKILL' }
    const run = await standing(t, [program('ignores-sigterm'), []], more)
    const exit = await run.child.wait()
    assertGone(run.witness)
    assert.deepEqual([exit.reason, exit.signal], ['overall-timeout', 'SIGKILL'])
  })

  test('can be extended too', options, async (t) => {
    const run = await standing(t, silent(), { timeout: 2000 })
    assert.equal(run.child.extendDeadline(1000), true)
    assert.equal((await run.child.wait()).message, 'turn timed out after 3s')
  })
})

describe('a deadline counts from the exec of the command:', posixOnly(NO_KEEPER, together), () => {
  /** Returns the exec stubs of a bot: processes that wait to execute its next commands. */
  const stubsOf = (bot) => childrenOf(bot.pid).flatMap(childrenOf).flatMap(childrenOf).filter(isHelper)

  /** Starts a bot whose next command cannot start, because the exec stub is stopped. */
  async function botWithStoppedStubs(t) {
    const bot = await startBot(t, freshRegistry())
    const spawn = (more) => bot.ask('spawn', 'sh', ['-c', 'exit 5'], { stdio: 'pipe', ...more })
    // After this run the bot knows that the program is executable, and does not wait for its exec.
    const { runId: first } = await spawn()
    await bot.ask('wait', first)
    const stubs = await until(() => stubsOf(bot).length > 0 && stubsOf(bot), 'an exec stub waits')
    for (const pid of stubs) {
      process.kill(pid, 'SIGSTOP')
      await until(() => stateOf(pid) === 'T', 'the exec stub is stopped')
    }
    return { bot, stubs, spawn }
  }

  test('the command runs although its exec stub was stopped', options, async (t) => {
    const { bot, spawn } = await botWithStoppedStubs(t)
    const { runId } = await spawn({ timeoutMs: 5000 })
    const { reason, exitCode } = await bot.ask('wait', runId)
    assert.deepEqual([reason, exitCode], ['exit', 5])
  })

  for (const name of ['timeoutMs', 'noOutputTimeoutMs']) {
    test(`a slow start does not use up ${name}`, options, async (t) => {
      const { bot, stubs, spawn } = await botWithStoppedStubs(t)
      const { runId } = await spawn({ [name]: 800 })
      await passing(900)
      // On a slow machine the bot has woken the stub by now, and its command has exited.
      for (const pid of stubs) if (stateOf(pid) === 'T') process.kill(pid, 'SIGCONT')
      const { reason, exitCode } = await bot.ask('wait', runId)
      assert.deepEqual([reason, exitCode], ['exit', 5])
    })
  }
})

test(
  'a run ends at its deadline although its command has stopped the keeper and the zygote',
  posixOnly(NO_KEEPER, options),
  async (t) => {
    const bot = await startBot(t, freshRegistry())
    const witness = openWitness(t)
    const fifo = join(witness.dir, 'pids')
    execFileSync('mkfifo', [fifo])
    const stopper = 'read -r helpers <"$1"; kill -STOP $helpers; exec 3>"$0"; printf r >&3; exec sleep 60'
    const args = ['-c', stopper, witness.path, fifo]
    const { pid, runId } = await bot.ask('spawn', 'sh', args, { timeoutMs: 5000 })
    const keeper = statOf(pid).parent
    // The command stops the zygote first, because the zygote would wake the keeper.
    const helpers = [statOf(keeper).parent, keeper]
    assert.deepEqual(helpers.map(isHelper), [true, true])
    t.after(() => process.kill(helpers[0], 'SIGCONT'))
    await writeFile(fifo, `${helpers.join(' ')}\n`)
    await witness.ready(1)
    const { reason, message } = await bot.ask('wait', runId)
    assertGone(witness)
    assert.deepEqual([reason, message], ['overall-timeout', 'turn timed out after 5s'])
  },
)

describe('if two events happen at the same time,', together, () => {
  test('the reason is correct for an exit and a deadline', options, async () => {
    const here = supervise(freshRegistry())
    const tries = Array.from({ length: 60 }, (_, i) => i)
    const seen = new Map()
    // The first two tries make sure that each outcome happens. The others exit close to the
    // deadline.
    const exits = await Promise.all(
      tries.map(async (i) => {
        const ms = i === 0 ? 10 : i === 1 ? 5000 : 290 + (i % 20)
        const timeoutMs = i === 0 ? FOR_EVER : 300
        return await here.spawnOwned('sleep', [`${ms / 1000}`], { timeoutMs, graceMs: FOR_EVER }).wait()
      }),
    )
    for (const { reason, exitCode, signal, timedOut, message } of exits) {
      seen.set(reason, (seen.get(reason) ?? 0) + 1)
      if (reason === 'exit') {
        assert.deepEqual([exitCode, signal, timedOut, message], [0, null, false, 'exited with code 0'])
      } else {
        assert.deepEqual([reason, timedOut, message], ['overall-timeout', true, 'turn timed out after 0.3s'])
        // The command may have exited before the signal arrived.
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

  test('the reason is correct for an exit and a cancel', options, async () => {
    const here = supervise(freshRegistry())
    const results = await Promise.all(
      Array.from({ length: 60 }, async (_, i) => {
        const child = here.spawnOwned('sleep', ['0.3'], { stdio: 'ignore' })
        if (i === 1) await child.wait()
        else if (i > 0) await passing(290 + (i % 20))
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

  test('one of two deadlines is the reason', options, async (t) => {
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
      const more = { ready: 2, noOutputTimeoutMs: 2000, graceMs: 4000 }
      const run = await standing(t, [program('ignores-sigterm'), []], more)
      await until(() => run.child.state === 'exiting', 'the idle timeout has expired')
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
      assert.equal(eventsOf(run, 'exiting').length, 1)
      assert.equal(eventsOf(run, 'exited').length, 1)
    },
  )

  test('a cancel of a run that has just exited returns already-exited', options, async () => {
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

describe('a kept run', together, () => {
  async function kept(t, more) {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const spawnOptions = { onOwnerExit: 'keep', graceMs: 1000, ...more }
    const { runId } = await bot.ask('spawn', program('stays'), [witness.path], spawnOptions)
    await witness.ready(1)
    await until(() => entriesOf(path)[0]?.state === 'running', 'the registry entry is written')
    await bot.kill()
    return { next: supervise(path), path, runId, witness }
  }

  test(
    'times out although its bot is dead, and the next bot gets the limit',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const { next, path, runId, witness } = await kept(t, { timeoutMs: 2500 })
      await witness.gone(60_000)
      await until(() => entriesOf(path)[0]?.exit, 'the entry has the exit')
      const exit = await (await next.adopt(runId)).wait()
      assert.deepEqual([exit.reason, exit.timedOut], ['overall-timeout', true])
      assert.equal(exit.message, 'turn timed out after 2.5s')
      assert.ok(exit.durationMs >= 2499, `${exit.durationMs} ms`)
    },
  )

  test('times out after an adoption, and warns its new owner', options, async (t) => {
    const { next, runId, witness } = await kept(t, { timeoutMs: 8000 })
    const run = await next.adopt(runId)
    const exit = await run.wait()
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.message], ['overall-timeout', 'turn timed out after 8s'])
    const types = next.events.map(({ type }) => type)
    assert.deepEqual(types, ['deadline-warning', 'exiting', 'exited'])
    assert.equal(next.events[0].limitMs, 8000)
  })

  test('has no extendDeadline after an adoption', options, async (t) => {
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
