// Ending runs on request: which ones, how, and what is said about it.
import assert from 'node:assert/strict'
import { getEventListeners, once } from 'node:events'
import { describe, test } from 'node:test'
import { cancel, list } from 'spawn-owned'
import { record, same, spawn, spawnOwned } from './fixtures/side-by-side.mjs'
import { stopKeeper, until } from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import {
  GRACE_FOR_ALL_MS,
  isWindows,
  NO_KEEPER,
  NO_SHELL,
  NO_SIGNALS,
  notUnderWine,
  posixOnly,
  WINE_CANNOT_ASK,
} from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 20_000 }
const FOR_EVER = 1e8

/** A run that stands, with its own witness. */
async function standing(t, more, name = 'stays', processes = 1) {
  const witness = openWitness(t)
  const child = spawnOwned(program(name), [witness.path], { stdio: 'ignore', ...more })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  await witness.ready(processes)
  return { child, witness, gone: () => witness.isGone() }
}

describe('a target', () => {
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
    ['a pid', ({ d }) => ({ pid: d.child.pid }), 'd'],
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
    ['a session that nobody has', () => ({ sessionId: 's3' }), ''],
    ['criteria that no run has together', () => ({ sessionId: 's2', scopeKey: 'k2' }), ''],
    ['a label that nobody has', () => ({ labels: { agent: 'claude', company: 'y' } }), ''],
    ['a label named as a member of every object', () => ({ labels: { constructor: 'x' } }), ''],
    ['a session that is not text', () => ({ sessionId: null }), ''],
    ['a process that is none of ours', (_, bystander) => bystander, ''],
    ['the pid of a process that is none of ours', (_, { pid }) => ({ pid }), ''],
  ]
  for (const [what, target, expected] of targets) {
    test(`${what} means ${expected || 'none'}`, options, async (t) => {
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

describe('refused, and nobody is touched:', () => {
  const empty = 'ERR_OWNED_EMPTY_FILTER'
  const type = 'ERR_INVALID_ARG_TYPE'
  const rows = [
    ['an empty filter', [{}], empty, /at least one/],
    ['a filter with empty labels', [{ labels: {} }], empty, /at least one/],
    ['a filter of undefined', [{ sessionId: undefined, labels: undefined }], empty, /at least one/],
    ['a filter of unknown criteria', [{ session: 's' }], empty, /runId, sessionId, scopeKey, pid/],
    ['an array', [[]], empty, /at least one/],
    ['a session that is a number', [{ sessionId: 7 }], type, /filter\.sessionId/],
    ['a pid that is text', [{ pid: '7' }], type, /filter\.pid/],
    ['labels that are none', [{ labels: 'x' }], type, /labels/],
    ['a label that is not text', [{ labels: { a: 7 } }], type, /labels/],
    ...[undefined, null, 7, true, Symbol('s')].map((target) => [String(target), [target], type, /run id/]),
    ['an unknown signal', ['the-run', { signal: 'SIGNONE' }], 'ERR_UNKNOWN_SIGNAL', /SIGNONE/],
    ['a signal of the wrong type', ['the-run', { signal: {} }], type, /options\.signal/],
    ['a negative grace', ['the-run', { graceMs: -1 }], 'ERR_OUT_OF_RANGE', /options\.graceMs/],
    ['a grace that is no number', ['the-run', { graceMs: '5' }], type, /options\.graceMs/],
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

describe('a run that has ended', () => {
  test('already-exited, with how it ended', options, async () => {
    const child = spawnOwned('sh', ['-c', 'exit 5'], { runId: 'ended', sessionId: 'ended-session' })
    const exit = await child.wait()
    for (const target of ['ended', child, { sessionId: 'ended-session' }, { runId: 'ended' }]) {
      assert.deepEqual(await cancel(target), { outcome: 'already-exited', exits: [exit] })
    }
    assert.deepEqual(await child.cancel(), exit)
  })

  test('that never started', options, async () => {
    const child = spawnOwned('nonexistent-command').on('error', () => {})
    const { outcome, exits } = await cancel(child)
    assert.deepEqual([outcome, exits[0].reason], ['already-exited', 'spawn-error'])
  })

  test('does not stand for one that lives', options, async (t) => {
    await spawnOwned('true', { sessionId: 'shared' }).wait()
    const { child } = await standing(t, { sessionId: 'shared' })
    const { outcome, exits } = await cancel({ sessionId: 'shared' })
    assert.deepEqual([outcome, exits.map(({ runId }) => runId)], ['cancelled', [child.runId]])
  })
})

describe('how', () => {
  test('the signal asked for comes first', posixOnly(NO_SIGNALS, options), async (t) => {
    for (const [signal, seen] of [
      ['SIGINT', 'SIGINT'],
      ['SIGKILL', 'SIGKILL'],
      [undefined, 'SIGTERM'],
    ]) {
      const { child } = await standing(t)
      assert.equal((await child.cancel({ signal, graceMs: FOR_EVER })).signal, seen)
    }
  })

  test('SIGKILL waits for no grace', options, async (t) => {
    const { child, gone } = await standing(t, {}, 'ignores-sigterm', 2)
    const exit = await child.cancel({ signal: 'SIGKILL', graceMs: FOR_EVER })
    assert.deepEqual([gone(), exit.signal], [true, 'SIGKILL'])
  })

  test('a huge grace is not waited out', options, async (t) => {
    const { child, gone } = await standing(t, {}, 'half-setsid', 33)
    await child.cancel({ graceMs: isWindows ? GRACE_FOR_ALL_MS : Number.MAX_SAFE_INTEGER })
    assert.ok(gone())
  })

  test('no grace at all still begins with the signal', posixOnly(NO_SIGNALS, options), async () => {
    const child = spawnOwned('sh', ['-c', 'trap "" TERM; echo; exec cat'])
    await once(child.stdout, 'data')
    const exit = await child.cancel({ graceMs: 0 })
    assert.deepEqual([exit.signal, exit.reason], ['SIGKILL', 'manual-cancel'])
  })

  test("the run's own grace is the default", notUnderWine(WINE_CANNOT_ASK, options), async (t) => {
    const { child } = await standing(t, { graceMs: 150 }, 'ignores-sigterm', 2)
    const from = performance.now()
    await child.cancel()
    const took = performance.now() - from
    assert.ok(took >= 149 && took < 4000, `${took} ms`)
  })

  for (const reason of ['shutdown', 'no-output-timeout', 'overall-timeout', 'owner-exit']) {
    test(`the reason given is the reason told: ${reason}`, options, async (t) => {
      const { child } = await standing(t)
      const exit = await child.cancel({ reason })
      assert.equal(exit.reason, reason)
      assert.equal(exit.timedOut, reason.endsWith('timeout'))
      assert.equal(exit.noOutputTimedOut, reason === 'no-output-timeout')
      assert.ok(exit.message.length > 0)
    })
  }
})

describe('more than once', () => {
  test('concurrent cancels are one', options, async (t) => {
    const { child, gone } = await standing(t, { sessionId: 'many' }, 'ignores-sigterm', 2)
    const answers = await Promise.all([
      child.cancel({ graceMs: 100, reason: 'shutdown' }),
      child.cancel({ graceMs: 100, reason: 'manual-cancel' }),
      cancel(child.runId, { graceMs: 100 }).then(({ exits }) => exits[0]),
      cancel({ sessionId: 'many' }, { graceMs: 100 }).then(({ exits }) => exits[0]),
      child.wait(),
    ])
    assert.ok(gone())
    assert.equal(answers[0].reason, 'shutdown', 'the first one decides')
    for (const answer of answers) assert.deepEqual(answer, answers[0])
  })

  test('a later one may shorten the grace', options, async (t) => {
    for (const shorter of [{ graceMs: 0 }, { signal: 'SIGKILL' }]) {
      const { child, gone } = await standing(t, {}, 'ignores-sigterm', 2)
      const first = child.cancel({ graceMs: FOR_EVER })
      const second = child.cancel(shorter)
      assert.deepEqual(await first, await second)
      assert.ok(gone())
    }
  })

  test('a later one never prolongs it', options, async (t) => {
    const { child } = await standing(t, {}, 'ignores-sigterm', 2)
    const [first, second] = await Promise.all([
      child.cancel({ graceMs: 100 }),
      child.cancel({ graceMs: FOR_EVER }),
    ])
    assert.deepEqual(first, second)
  })

  test('each process gets the first signal once', posixOnly(NO_SHELL, options), async () => {
    const line = "n=0; trap 'n=$((n + 1)); echo $n' TERM; echo 0; while :; do read _ || :; done"
    const child = spawnOwned('bash', ['-c', line])
    let said = ''
    child.stdout.on('data', (text) => {
      said += text
    })
    await once(child.stdout, 'data')
    for (let i = 0; i < 5; i++) child.cancel({ graceMs: 300 })
    await child.cancel({ graceMs: 300 })
    assert.deepEqual(said.trim().split('\n'), ['0', '1'])
  })
})

describe('as in child_process, signal and timeout', () => {
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
      // There it ends at once, and which of two signals it has ended by depends on who is faster.
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

test('in the same tick as the start', options, async (t) => {
  const witness = openWitness(t)
  const started = Array.from({ length: 20 }, () =>
    spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' }),
  )
  const exits = await Promise.all(started.map((child) => child.cancel({ graceMs: FOR_EVER })))
  witness.release()
  assert.ok(witness.isGone(), witness.holders())
  assert.deepEqual(new Set(exits.map(({ reason }) => reason)), new Set(['manual-cancel']))
})

test('fifty at once', options, async (t) => {
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
  'a cancel is heard, whatever was asked for before it that nobody has heard yet',
  posixOnly(NO_KEEPER, options),
  async (t) => {
    const { child, gone } = await standing(t)
    const running = () => list({ runId: child.runId }).find(({ state }) => state === 'running')
    await stopKeeper(t, await until(running, 'it runs'))
    // Many more than a socket holds.
    const sent = Array.from({ length: 2000 }, () => child.kill('SIGWINCH'))
    assert.ok(sent.every(Boolean), 'they are on their way')
    const { reason, signal } = await child.cancel({ graceMs: FOR_EVER })
    assert.deepEqual([reason, signal, gone()], ['manual-cancel', 'SIGTERM', true])
  },
)
