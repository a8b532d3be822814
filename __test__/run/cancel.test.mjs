// cancel(): which runs it ends, how, and what it returns.
import { getEventListeners, once } from 'node:events'
import { cancel, list } from 'spawn-owned'
import { record, same, spawn, spawnOwned } from '../fixtures/side-by-side.mjs'
import { stopKeeper, until } from '../support/bots.mjs'
import { assert, describe, FOR_EVER, openWitness, program, test } from '../support/prelude.mjs'
import {
  GRACE_FOR_ALL_MS,
  isWindows,
  NO_KEEPER,
  NO_SHELL,
  NO_SIGNALS,
  notUnderWine,
  posixOnly,
  WINE_CANNOT_ASK,
} from '../support/system.mjs'

const options = { timeout: 20_000 }

/** Starts a run with its own witness, and waits until all its processes are ready. */
async function standing(t, more, name = 'stays', processes = 1) {
  const witness = openWitness(t)
  const child = spawnOwned(program(name), [witness.path], { stdio: 'ignore', ...more })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  await witness.ready(processes)
  return { child, witness, gone: () => witness.isGone() }
}

describe('cancel', () => {
  const runs = {
    a: { runId: 'run-a', sessionId: 's1', scopeKey: 'k1', labels: { agent: 'claude', company: 'x' } },
    b: { runId: 'run-b', sessionId: 's1', scopeKey: 'k2', labels: { agent: 'codex', company: 'x' } },
    c: { runId: 'run-c', sessionId: 's2', scopeKey: 'k1', labels: { agent: 'claude' } },
    d: { runId: 'run-d' },
  }
  const targets = [
    ['a run id', () => 'run-b', 'b'],
    ['a process', ({ c }) => c.child, 'c'],
    ['a run id in a filter', () => ({ runId: 'run-d' }), 'd'],
    ['a session', () => ({ sessionId: 's1' }), 'ab'],
    ['a scope', () => ({ scopeKey: 'k1' }), 'ac'],
    ['a PID', ({ d }) => ({ pid: d.child.pid }), 'd'],
    ['a label', () => ({ labels: { agent: 'claude' } }), 'ac'],
    ['several labels', () => ({ labels: { agent: 'claude', company: 'x' } }), 'a'],
    ['several criteria', () => ({ sessionId: 's1', scopeKey: 'k2' }), 'b'],
    ['criteria and labels', () => ({ sessionId: 's1', labels: { company: 'x' } }), 'ab'],
    [
      'a criterion beside undefined ones',
      () => ({ sessionId: 's2', runId: undefined, labels: undefined }),
      'c',
    ],
    ['an unknown run id', () => 'run', ''],
    ['an empty run id', () => '', ''],
    ['a session that no run has', () => ({ sessionId: 's3' }), ''],
    ['criteria that no run has together', () => ({ sessionId: 's2', scopeKey: 'k2' }), ''],
    ['a label that no run has', () => ({ labels: { agent: 'claude', company: 'y' } }), ''],
    ['a label named like a property of every object', () => ({ labels: { constructor: 'x' } }), ''],
    ['a session that is not text', () => ({ sessionId: null }), ''],
    ['a process that is not owned', (_, bystander) => bystander, ''],
    ['the PID of a process that is not owned', (_, { pid }) => ({ pid }), ''],
  ]
  for (const [what, target, expected] of targets) {
    test(`with ${what} ends exactly: ${expected || 'none'}`, options, async (t) => {
      const started = {}
      for (const [name, more] of Object.entries(runs)) started[name] = await standing(t, more)
      const bystander = spawn('cat')
      t.after(() => bystander.kill('SIGKILL'))

      const { outcome, exits } = await cancel(target(started, bystander))

      const gone = Object.keys(started).filter((name) => started[name].gone())
      assert.equal(gone.join(''), expected)
      assert.equal(outcome, expected ? 'cancelled' : 'not-found')
      const ids = exits.map(({ runId, reason, survivors }) => [runId, reason, survivors])
      assert.deepEqual(
        ids,
        [...expected].map((name) => [`run-${name}`, 'manual-cancel', []]),
      )
      assert.equal(bystander.stdin.destroyed || bystander.exitCode !== null || bystander.killed, false)
    })
  }
})

describe('cancel rejects, and ends no run, if it gets', () => {
  const empty = 'ERR_OWNED_EMPTY_FILTER'
  const type = 'ERR_INVALID_ARG_TYPE'
  const rows = [
    ['an empty filter', [{}], empty, /at least one/],
    ['a filter with empty labels', [{ labels: {} }], empty, /at least one/],
    ['a filter of undefined', [{ sessionId: undefined, labels: undefined }], empty, /at least one/],
    ['a filter of unknown criteria', [{ session: 's' }], empty, /runId, sessionId, scopeKey, pid/],
    ['an array', [[]], empty, /at least one/],
    ['a session that is numeric', [{ sessionId: 7 }], type, /filter\.sessionId/],
    ['a PID that is text', [{ pid: '7' }], type, /filter\.pid/],
    ['labels that are text', [{ labels: 'x' }], type, /labels/],
    ['a label that is not text', [{ labels: { a: 7 } }], type, /labels/],
    ...[undefined, null, 7, true, Symbol('s')].map((target) => [String(target), [target], type, /run id/]),
    ['an unknown signal', ['the-run', { signal: 'SIGNONE' }], 'ERR_UNKNOWN_SIGNAL', /SIGNONE/],
    ['a signal of the wrong type', ['the-run', { signal: {} }], type, /options\.signal/],
    ['a negative grace', ['the-run', { graceMs: -1 }], 'ERR_OUT_OF_RANGE', /options\.graceMs/],
    ['a grace that is text', ['the-run', { graceMs: '5' }], type, /options\.graceMs/],
    [
      'an unknown reason',
      ['the-run', { reason: 'whim' }],
      'ERR_INVALID_ARG_VALUE',
      /options\.reason.*manual-cancel/,
    ],
  ]
  for (const [what, args, code, message] of rows) {
    test(what, options, async (t) => {
      const { child, gone } = await standing(t, { runId: 'the-run' })
      // A rejection, not an exception: callers of an async function have one place to look.
      const answer = cancel(...args)
      await assert.rejects(answer, (error) => {
        assert.equal(error.code, code, error.stack)
        assert.match(error.message, message)
        return true
      })
      assert.deepEqual([gone(), child.state], [false, 'running'])
    })
  }
})

describe('cancel of a run that has ended', () => {
  test('returns already-exited and its exit', options, async () => {
    const child = spawnOwned('sh', ['-c', 'exit 5'], { runId: 'ended', sessionId: 'ended-session' })
    const exit = await child.wait()
    for (const target of ['ended', child, { sessionId: 'ended-session' }, { runId: 'ended' }]) {
      assert.deepEqual(await cancel(target), { outcome: 'already-exited', exits: [exit] })
    }
    assert.deepEqual(await child.cancel(), exit)
  })

  test('returns already-exited for a run that never started', options, async () => {
    const child = spawnOwned('nonexistent-command').on('error', () => {})
    const { outcome, exits } = await cancel(child)
    assert.deepEqual([outcome, exits[0].reason], ['already-exited', 'spawn-error'])
  })

  test('cancels only the live run if both match', options, async (t) => {
    await spawnOwned('true', { sessionId: 'shared' }).wait()
    const { child } = await standing(t, { sessionId: 'shared' })
    const { outcome, exits } = await cancel({ sessionId: 'shared' })
    assert.deepEqual([outcome, exits.map(({ runId }) => runId)], ['cancelled', [child.runId]])
  })
})

describe('on cancel', () => {
  test('the tree gets the given signal first', posixOnly(NO_SIGNALS, options), async (t) => {
    for (const [signal, seen] of [
      ['SIGINT', 'SIGINT'],
      ['SIGKILL', 'SIGKILL'],
      [undefined, 'SIGTERM'],
    ]) {
      const { child } = await standing(t)
      assert.equal((await child.cancel({ signal, graceMs: FOR_EVER })).signal, seen)
    }
  })

  test('SIGKILL does not wait for the grace period', options, async (t) => {
    const { child, gone } = await standing(t, {}, 'ignores-sigterm', 2)
    const exit = await child.cancel({ signal: 'SIGKILL', graceMs: FOR_EVER })
    assert.deepEqual([gone(), exit.signal], [true, 'SIGKILL'])
  })

  test('the wait ends with the tree, however long the grace period is', options, async (t) => {
    const { child, gone } = await standing(t, {}, 'half-setsid', 33)
    await child.cancel({ graceMs: isWindows ? GRACE_FOR_ALL_MS : Number.MAX_SAFE_INTEGER })
    assert.ok(gone())
  })

  test('a grace period of 0 still sends the signal first', posixOnly(NO_SIGNALS, options), async () => {
    const child = spawnOwned('sh', ['-c', 'trap "" TERM; echo; exec cat'])
    await once(child.stdout, 'data')
    const exit = await child.cancel({ graceMs: 0 })
    assert.deepEqual([exit.signal, exit.reason], ['SIGKILL', 'manual-cancel'])
  })

  test("the run's own grace period is the default", notUnderWine(WINE_CANNOT_ASK, options), async (t) => {
    const { child } = await standing(t, { graceMs: 150 }, 'ignores-sigterm', 2)
    const from = performance.now()
    await child.cancel()
    const took = performance.now() - from
    assert.ok(took >= 149 && took < 4000, `${took} ms`)
  })

  for (const reason of ['shutdown', 'no-output-timeout', 'overall-timeout', 'owner-exit']) {
    test(`the exit has the given reason: ${reason}`, options, async (t) => {
      const { child } = await standing(t)
      const exit = await child.cancel({ reason })
      assert.equal(exit.reason, reason)
      assert.equal(exit.timedOut, reason.endsWith('timeout'))
      assert.equal(exit.noOutputTimedOut, reason === 'no-output-timeout')
      assert.ok(exit.message.length > 0)
    })
  }
})

describe('several cancels of one run', () => {
  test('share one result', options, async (t) => {
    const { child, gone } = await standing(t, { sessionId: 'many' }, 'ignores-sigterm', 2)
    const answers = await Promise.all([
      child.cancel({ graceMs: 100, reason: 'shutdown' }),
      child.cancel({ graceMs: 100, reason: 'manual-cancel' }),
      cancel(child.runId, { graceMs: 100 }).then(({ exits }) => exits[0]),
      cancel({ sessionId: 'many' }, { graceMs: 100 }).then(({ exits }) => exits[0]),
      child.wait(),
    ])
    assert.ok(gone())
    assert.equal(answers[0].reason, 'shutdown', 'the first cancel decides the reason')
    for (const answer of answers) assert.deepEqual(answer, answers[0])
  })

  test('end it earlier if a later one has a shorter grace period', options, async (t) => {
    for (const shorter of [{ graceMs: 0 }, { signal: 'SIGKILL' }]) {
      const { child, gone } = await standing(t, {}, 'ignores-sigterm', 2)
      const first = child.cancel({ graceMs: FOR_EVER })
      const second = child.cancel(shorter)
      assert.deepEqual(await first, await second)
      assert.ok(gone())
    }
  })

  test('do not end it later if a later one has a longer grace period', options, async (t) => {
    const { child } = await standing(t, {}, 'ignores-sigterm', 2)
    const [first, second] = await Promise.all([
      child.cancel({ graceMs: 100 }),
      child.cancel({ graceMs: FOR_EVER }),
    ])
    assert.deepEqual(first, second)
  })

  test('send the first signal once to each process', posixOnly(NO_SHELL, options), async () => {
    const line = "n=0; trap 'n=$((n + 1)); echo $n' TERM; echo 0; while :; do read _ || :; done"
    const child = spawnOwned('bash', ['-c', line])
    let output = ''
    child.stdout.on('data', (text) => {
      output += text
    })
    await once(child.stdout, 'data')
    for (let i = 0; i < 5; i++) child.cancel({ graceMs: 300 })
    await child.cancel({ graceMs: 300 })
    assert.deepEqual(output.trim().split('\n'), ['0', '1'])
  })
})

describe('the options signal and timeout behave as in child_process:', () => {
  const aborting = {
    'aborted before': (abort) => abort() && undefined,
    'aborted in the same tick': (abort, child) => child && abort(),
    'aborted when it runs': async (abort, child) => child && once(child, 'spawn').then(abort),
    'aborted twice': (abort, child) => child && [abort(), abort()],
    'aborted after its exit': (abort, child) => child?.on('exit', abort).stdin.end(),
    'aborted after its close': (abort, child) => child?.on('close', abort).stdin.end(),
    'aborted after kill()': (abort, child) => child?.kill() && abort(),
    'never aborted': (_, child) => child?.stdin.end(),
  }
  for (const [when, act] of Object.entries(aborting)) {
    for (const more of [{}, { killSignal: 'SIGKILL' }]) {
      // On Windows kill() ends the process at once, so either of the two signals can be the first.
      if (isWindows && more.killSignal && when === 'aborted after kill()') continue
      same(`${when}, ${more.killSignal ?? 'default signal'}`, async (start) => {
        const controller = new AbortController()
        const abort = () => controller.abort(new RangeError('the reason')) ?? true
        act(abort, undefined)
        const child = start('cat', { signal: controller.signal, ...more })
        const ended = record(child)
        if (!controller.signal.aborted) await act(abort, child)
        const seen = await ended
        return [seen, child.killed, getEventListeners(controller.signal, 'abort').length]
      })
    }
  }

  same('timeout', async (start) => {
    const started = [{ timeout: 30 }, { timeout: 30, killSignal: 'SIGINT' }, { timeout: 30, killSignal: 9 }]
    const children = started.map((more) => start('cat', more))
    const seen = await Promise.all(children.map(record))
    return seen.map(({ log }, index) => [log, children[index].killed])
  })

  same('a timeout that is not reached', async (start) => {
    const child = start('cat', { timeout: 60_000 })
    child.stdin.end()
    return [await record(child), child.killed]
  })
})

test('cancel in the same tick as the start ends the run', options, async (t) => {
  const witness = openWitness(t)
  const started = Array.from({ length: 20 }, () =>
    spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' }),
  )
  const exits = await Promise.all(started.map((child) => child.cancel({ graceMs: FOR_EVER })))
  witness.release()
  assert.ok(witness.isGone(), witness.holders())
  assert.deepEqual(new Set(exits.map(({ reason }) => reason)), new Set(['manual-cancel']))
})

test('one cancel ends fifty runs', options, async (t) => {
  const witness = openWitness(t)
  const more = { stdio: 'ignore', labels: { batch: 'fifty' } }
  const started = Array.from({ length: 50 }, () => spawnOwned(program('stays'), [witness.path], more))
  await witness.ready(50)
  const { outcome, exits } = await cancel({ labels: { batch: 'fifty' } }, { graceMs: FOR_EVER })
  assert.ok(witness.isGone(), witness.holders())
  assert.equal(outcome, 'cancelled')
  assert.deepEqual(exits.map(({ runId }) => runId).toSorted(), started.map(({ runId }) => runId).toSorted())
})

test(
  'a cancel ends the run although thousands of unread signal requests precede it',
  posixOnly(NO_KEEPER, options),
  async (t) => {
    const { child, gone } = await standing(t)
    const running = () => list({ runId: child.runId }).find(({ state }) => state === 'running')
    await stopKeeper(t, await until(running, 'the run is running'))
    // Many more than the socket buffer holds.
    const sent = Array.from({ length: 2000 }, () => child.kill('SIGWINCH'))
    assert.ok(sent.every(Boolean), 'kill() accepts all of them')
    const { reason, signal } = await child.cancel({ graceMs: FOR_EVER })
    assert.deepEqual([reason, signal, gone()], ['manual-cancel', 'SIGTERM', true])
  },
)
