// Events of runs: which ones the supervisor and diagnostics_channel emit, in which order, and how
// often.
import { execFile } from 'node:child_process'
import diagnostics from 'node:diagnostics_channel'
import { once } from 'node:events'
import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { assertGone, freshRegistry, keeperOf, supervise, until } from '../support/bots.mjs'
import { FOR_EVER, silent, standing, talking } from '../support/deadlines.mjs'
import { crashed } from '../support/orphans.mjs'
import {
  assert,
  describe,
  openWitness,
  options,
  program,
  script,
  test,
  together,
} from '../support/prelude.mjs'
import { isWindows, NO_INTERPRETERS, NO_KEEPER, NO_SESSIONS, posixOnly } from '../support/system.mjs'

/**
 * Returns the event types of a run, in order. Without output and deadline-warning: their timing
 * depends on the machine.
 */
const types = (here, { runId }) =>
  here.events
    .filter((event) => event.runId === runId && !['output', 'deadline-warning'].includes(event.type))
    .map(({ type }) => type)

const ofType = (here, type) => here.events.filter((event) => event.type === type)

describe('the events have the right content', together, () => {
  const names = { sessionId: 'the session', scopeKey: 'the scope', labels: { agent: 'claude' } }

  /** Checks all fields of each event. The times must lie within this test. */
  function assertEvents(here, child, since, expected) {
    const now = Date.now()
    for (const { atMs } of here.events) assert.ok(atMs >= since && atMs <= now, `${since} ${atMs} ${now}`)
    const { runId, pid } = child
    const events = here.events.map(({ atMs, ...event }) => event)
    assert.deepEqual(
      events.filter(({ type }) => type !== 'output'),
      expected.map(([type, details]) => ({ type, runId, pid, ...names, ...details })),
    )
  }

  test('for a run that writes and exits', options, async () => {
    const here = supervise(freshRegistry())
    const since = Date.now()
    const child = here.spawnOwned('sh', ['-c', 'echo word; read -r _; exit 3'], names)
    await once(child.stdout, 'data')
    child.stdin.end()
    const exit = await child.wait()
    assertEvents(here, child, since, [
      ['spawn', { commandPreview: 'sh -c echo word; read -r _; exit 3' }],
      ['started', {}],
      ['exited', { exit }],
    ])
    const [{ atMs, ...output }] = ofType(here, 'output')
    assert.deepEqual(output, { type: 'output', runId: child.runId, pid: child.pid, ...names })
  })

  test('for a run that is cancelled', options, async (t) => {
    const since = Date.now()
    const { child, here } = await standing(t, silent(), { ...names, commandPreview: 'the preview' })
    const exit = await child.cancel({ reason: 'shutdown' })
    assertEvents(here, child, since, [
      ['spawn', { commandPreview: 'the preview' }],
      ['started', {}],
      ['exiting', { reason: 'shutdown' }],
      ['exited', { exit }],
    ])
  })

  test('for a run that leaves a daemon behind', posixOnly(NO_SESSIONS, options), async (t) => {
    const since = Date.now()
    const more = { ...names, ready: 2, commandPreview: 'forks' }
    const { child, here } = await standing(t, [program('double-fork-daemon'), []], more)
    child.stdin.end()
    const exit = await child.wait()
    assert.equal(exit.escaped.length, 1)
    assertEvents(here, child, since, [
      ['spawn', { commandPreview: 'forks' }],
      ['started', {}],
      ['escape', { escaped: exit.escaped }],
      ['exited', { exit }],
    ])
  })

  test('for a command that cannot be started', options, async () => {
    const here = supervise(freshRegistry())
    const since = Date.now()
    const child = here.spawnOwned('/nonexistent/command', names).on('error', () => {})
    const exit = await child.wait()
    assertEvents(here, child, since, [['exited', { exit }]])
    assert.deepEqual([exit.reason, here.events[0].pid], ['spawn-error', undefined])
  })

  test('for a run without session, scope and labels', options, async () => {
    const here = supervise(freshRegistry())
    await here.spawnOwned('true').wait()
    const [{ sessionId, scopeKey, labels }] = here.events
    assert.deepEqual([sessionId, scopeKey, labels], [undefined, undefined, {}])
  })
})

describe('each run emits exited once', together, () => {
  const ended = ['spawn', 'started', 'exiting', 'exited']

  test('for every way to end', posixOnly(NO_KEEPER, options), async (t) => {
    const here = supervise(freshRegistry())
    const sh = (line, more) => here.spawnOwned('sh', ['-c', line], more)
    const runs = {
      exit: sh('exit 0'),
      signal: sh('kill -9 $$'),
      cancel: sh('read _'),
      'several cancels': sh('trap "" TERM; echo; read _'),
      deadline: sh('read _', { timeoutMs: 1000 }),
      silence: sh('read _', { noOutputTimeoutMs: 1000 }),
      'no such command': here.spawnOwned('/nonexistent/command').on('error', () => {}),
      'no such directory': here.spawnOwned('true', { cwd: '/nonexistent' }).on('error', () => {}),
      'a keeper that is killed': sh('read _'),
    }
    t.after(() => Promise.all(Object.values(runs).map((run) => run.cancel({ signal: 'SIGKILL' }))))
    runs.cancel.cancel()
    runs['several cancels'].stdout.once('data', () => {
      for (let i = 0; i < 5; i++) runs['several cancels'].cancel({ graceMs: 200 })
      here.cancel(runs['several cancels'].runId)
    })
    const lost = runs['a keeper that is killed']
    const [record] = await until(() => {
      const found = here.list({ runId: lost.runId })
      return found[0]?.state === 'running' && found
    }, 'the registry entry is written')
    process.kill(keeperOf(record), 'SIGKILL')
    const ends = await Promise.all(Object.values(runs).map((run) => run.wait()))
    const seen = Object.fromEntries(Object.entries(runs).map(([name, run]) => [name, types(here, run)]))
    assert.deepEqual(seen, {
      exit: ['spawn', 'started', 'exited'],
      signal: ['spawn', 'started', 'exited'],
      cancel: ended,
      'several cancels': ended,
      deadline: ended,
      silence: ended,
      'no such command': ['exited'],
      'no such directory': ['exited'],
      'a keeper that is killed': ['spawn', 'started', 'exited'],
    })
    assert.deepEqual(
      new Set(ofType(here, 'exited').map(({ exit }) => exit)),
      new Set(ends),
      'the events have the results of wait()',
    )
  })

  test(
    'for a program that was executed before and now cannot be',
    posixOnly(NO_INTERPRETERS, options),
    async (t) => {
      const here = supervise(freshRegistry())
      const folder = mkdtempSync(join(tmpdir(), 'events-'))
      t.after(() => rmSync(folder, { recursive: true, maxRetries: 10 }))
      const [interpreter, file] = ['interpreter', 'script'].map((name) => join(folder, name))
      copyFileSync('/bin/sh', interpreter)
      writeFileSync(file, `#!${interpreter}\nexit 3\n`)
      for (const path of [interpreter, file]) chmodSync(path, 0o755)
      await here.spawnOwned(file).wait()
      rmSync(interpreter)
      const child = here.spawnOwned(file).on('error', () => {})
      assert.equal((await child.wait()).reason, 'spawn-error')
      assert.equal(types(here, child).filter((type) => type === 'exited').length, 1)
      assert.equal(types(here, child).at(-1), 'exited')
    },
  )

  test('and no event after it, although its last output is read later', options, async () => {
    const here = supervise(freshRegistry())
    // As much as fits into the pipe, which is less on Windows: the command exits before the first
    // read.
    const bytes = isWindows ? 60_000 : 150_000
    const child = here.spawnOwned('head', ['-c', String(bytes), '/dev/zero'])
    child.stdout.pause()
    const giveUpAt = performance.now() + 60_000
    while (here.metrics().run_exit_total.exit === 0 && performance.now() < giveUpAt);
    await once(child, 'close')
    assert.equal(child.stdout.bytesRead, bytes)
    assert.equal(here.events.at(-1).type, 'exited')
  })

  test('after wait() has resolved and the tree is gone', options, async (t) => {
    const { child, here, witness } = await standing(t, [program('half-setsid'), []], { ready: 33 })
    const atExit = new Promise((resolve) => {
      here.on('event', ({ type }) => type === 'exited' && resolve([witness.isGone(), child.state]))
    })
    child.cancel()
    assert.deepEqual(await atExit, [true, 'exited'])
  })
})

describe('the event output', together, () => {
  test('comes at most once per second, and keeps coming', options, async (t) => {
    const { child, here } = await standing(t, talking(1, 5))
    const times = []
    const fourTimes = new Promise((resolve) => {
      here.on('event', ({ type }) => {
        if (type === 'output') times.push(performance.now())
        if (times.length === 4) resolve()
      })
    })
    child.stdout.resume()
    await fourTimes
    const gaps = times.slice(1).map((at, index) => at - times[index])
    for (const gap of gaps) assert.ok(gap >= 995, `${gaps}`)
    await child.cancel({ graceMs: 5000 })
  })

  test('comes for stderr too, but not for output that the bot does not read', options, async (t) => {
    const { child, here } = await standing(t, talking(2, 20))
    await here.spawnOwned('sleep', ['0.2']).wait()
    assert.deepEqual(ofType(here, 'output'), [])
    child.stderr.resume()
    await until(() => ofType(here, 'output').length > 0, 'the event comes')
    await child.cancel({ graceMs: 5000 })
  })

  test('updates lastOutputAtMs in the registry', options, async (t) => {
    const before = Date.now()
    const { child, here } = await standing(t, talking(1, 20))
    const last = () => here.list({ runId: child.runId })[0].lastOutputAtMs
    assert.equal(last(), null)
    child.stdout.resume()
    await until(() => last() !== null, 'the registry entry is written')
    assert.ok(last() >= before && last() <= Date.now(), `${last()}`)
    await child.cancel({ graceMs: 5000 })
  })
})

describe('diagnostics_channel', () => {
  /** What is published about these runs. A run of an earlier test can still end meanwhile. */
  const about = (published, runIds) => published.filter(([, { runId }]) => runIds.includes(runId))

  /** Collects what is published while the test runs. */
  function subscribe(t, ...names) {
    const published = []
    for (const name of names) {
      const channel = `spawn-owned:${name}`
      const listener = (event, from) => published.push([from, event])
      diagnostics.subscribe(channel, listener)
      t.after(() => diagnostics.unsubscribe(channel, listener))
    }
    return published
  }

  test('publishes the event objects of all supervisors', options, async (t) => {
    const published = subscribe(t, 'spawn', 'started', 'exiting', 'exited')
    const both = [supervise(freshRegistry()), supervise(freshRegistry())]
    for (const here of both) {
      const child = here.spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
      await child.cancel()
    }
    const emitted = both.flatMap(({ events }) => events)
    assert.equal(emitted.length, 8)
    const ours = about(
      published,
      emitted.map(({ runId }) => runId),
    )
    assert.deepEqual(
      ours.map(([channel]) => channel),
      emitted.map(({ type }) => `spawn-owned:${type}`),
    )
    for (const [index, [, event]] of ours.entries()) assert.equal(event, emitted[index])
  })

  test('publishes events also if the supervisor has no listener', options, async (t) => {
    const published = subscribe(t, 'exited')
    const here = supervise(freshRegistry())
    here.removeAllListeners('event')
    const exit = await here.spawnOwned('true').wait()
    assert.deepEqual(
      about(published, [exit.runId]).map(([, event]) => event.exit),
      [exit],
    )
  })

  test('publishes the decisions of reapers', options, async (t) => {
    const published = subscribe(t, 'reap-decision')
    const { next, runId, witness } = await crashed(t)
    await next.reapOrphans()
    assertGone(witness)
    assert.deepEqual(
      published.map(([, event]) => [event.runId, event.outcome]),
      [[runId, 'ended']],
    )
    assert.deepEqual(
      ofType(next, 'reap-decision').map(({ runId: id }) => id),
      [runId],
    )
  })
})

describe('a listener that throws', together, () => {
  for (const where of ['supervisor', 'channel']) {
    test(`disturbs no run, and its error is reported: ${where}`, options, async () => {
      const bot = [script('bot-with-a-faulty-listener.mjs'), freshRegistry(), where]
      const { stdout } = await promisify(execFile)(process.execPath, bot)
      const { thrown, events, exits } = JSON.parse(stdout)
      assert.deepEqual(exits, ['exit', 'manual-cancel', 'spawn-error'])
      assert.deepEqual(events, [
        ['spawn', 'exit', 'close'],
        ['spawn', 'exit', 'close'],
        ['error', 'close'],
      ])
      assert.deepEqual(thrown.toSorted(), [
        ...['exited', 'exited', 'exited', 'exiting'],
        ...['spawn', 'spawn', 'started', 'started'],
      ])
    })
  }
})

test('a listener can start and cancel runs', options, async (t) => {
  const here = supervise(freshRegistry())
  const witness = openWitness(t)
  const ended = []
  const all = new Promise((resolve) => {
    here.on('event', ({ type, runId }) => {
      if (type === 'started') here.cancel(runId, { graceMs: FOR_EVER })
      if (type !== 'exited') return
      ended.push(runId)
      if (ended.length < 5) here.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
      else resolve()
    })
  })
  here.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
  await all
  witness.release()
  assertGone(witness)
  assert.equal(new Set(ended).size, 5)
})
