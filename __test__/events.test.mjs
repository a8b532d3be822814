// What is told of runs, to whom, in which order, and how often.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import diagnostics from 'node:diagnostics_channel'
import { once } from 'node:events'
import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { assertGone, freshRegistry, keeperOf, supervise, until } from './support/bots.mjs'
import { FOR_EVER, silent, standing, talking } from './support/deadlines.mjs'
import { program, script } from './support/fixtures.mjs'
import { crashed } from './support/orphans.mjs'
import { isWindows, NO_INTERPRETERS, NO_KEEPER, NO_SESSIONS, posixOnly } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 4 }

/** What was told of a run, in order. When it is told of output, and whether a warning comes in time, depends on the machine. */
const types = (here, { runId }) =>
  here.events
    .filter((event) => event.runId === runId && !['output', 'deadline-warning'].includes(event.type))
    .map(({ type }) => type)

const ofType = (here, type) => here.events.filter((event) => event.type === type)

describe('content:', together, () => {
  const who = { sessionId: 'the session', scopeKey: 'the scope', labels: { agent: 'claude' } }

  /** Everything that each event has, and nothing else; times are those of this test. */
  function assertEvents(here, child, since, expected) {
    const now = Date.now()
    for (const { atMs } of here.events) assert.ok(atMs >= since && atMs <= now, `${since} ${atMs} ${now}`)
    const { runId, pid } = child
    const events = here.events.map(({ atMs, ...event }) => event)
    assert.deepEqual(
      events.filter(({ type }) => type !== 'output'),
      expected.map(([type, details]) => ({ type, runId, pid, ...who, ...details })),
    )
  }

  test('of a run that talks and exits', options, async () => {
    const here = supervise(freshRegistry())
    const since = Date.now()
    const child = here.spawnOwned('sh', ['-c', 'echo word; read -r _; exit 3'], who)
    await once(child.stdout, 'data')
    child.stdin.end()
    const exit = await child.wait()
    assertEvents(here, child, since, [
      ['spawn', { commandPreview: 'sh -c echo word; read -r _; exit 3' }],
      ['started', {}],
      ['exited', { exit }],
    ])
    const [{ atMs, ...output }] = ofType(here, 'output')
    assert.deepEqual(output, { type: 'output', runId: child.runId, pid: child.pid, ...who })
  })

  test('of a run that is cancelled', options, async (t) => {
    const since = Date.now()
    const { child, here } = await standing(t, silent(), { ...who, commandPreview: 'the preview' })
    const exit = await child.cancel({ reason: 'shutdown' })
    assertEvents(here, child, since, [
      ['spawn', { commandPreview: 'the preview' }],
      ['started', {}],
      ['exiting', { reason: 'shutdown' }],
      ['exited', { exit }],
    ])
  })

  test('of a run that has left somebody behind', posixOnly(NO_SESSIONS, options), async (t) => {
    const since = Date.now()
    const more = { ...who, ready: 2, commandPreview: 'forks' }
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

  test('of a command that cannot be started', options, async () => {
    const here = supervise(freshRegistry())
    const since = Date.now()
    const child = here.spawnOwned('/nonexistent/command', who).on('error', () => {})
    const exit = await child.wait()
    assertEvents(here, child, since, [['exited', { exit }]])
    assert.deepEqual([exit.reason, here.events[0].pid], ['spawn-error', undefined])
  })

  test('a run without names has none', options, async () => {
    const here = supervise(freshRegistry())
    await here.spawnOwned('true').wait()
    const [{ sessionId, scopeKey, labels }] = here.events
    assert.deepEqual([sessionId, scopeKey, labels], [undefined, undefined, {}])
  })
})

describe('each run is told to have ended once:', together, () => {
  const ended = ['spawn', 'started', 'exiting', 'exited']

  test('whichever way it ends', posixOnly(NO_KEEPER, options), async (t) => {
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
    }, 'it is on record')
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
      'and told is what wait() says',
    )
  })

  test(
    'a program that was executed before, and now cannot be',
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

  test('and nothing after that, although its last words are read later', options, async () => {
    const here = supervise(freshRegistry())
    // As much as fits between the two, which is less in a pipe of Windows: it is over before the first is read.
    const bytes = isWindows ? 60_000 : 150_000
    const child = here.spawnOwned('head', ['-c', String(bytes), '/dev/zero'])
    child.stdout.pause()
    const giveUpAt = performance.now() + 60_000
    while (here.metrics().run_exit_total.exit === 0 && performance.now() < giveUpAt);
    await once(child, 'close')
    assert.equal(child.stdout.bytesRead, bytes)
    assert.equal(here.events.at(-1).type, 'exited')
  })

  test('its end is told when wait() has resolved, and its tree is gone', options, async (t) => {
    const { child, here, witness } = await standing(t, [program('half-setsid'), []], { ready: 33 })
    const told = new Promise((resolve) => {
      here.on('event', ({ type }) => type === 'exited' && resolve([witness.isGone(), child.state]))
    })
    child.cancel()
    assert.deepEqual(await told, [true, 'exited'])
  })
})

describe('output', together, () => {
  test('is told once in a second at most, and goes on being told', options, async (t) => {
    const { child, here } = await standing(t, talking(1, 5))
    const times = []
    const often = new Promise((resolve) => {
      here.on('event', ({ type }) => {
        if (type === 'output') times.push(performance.now())
        if (times.length === 4) resolve()
      })
    })
    child.stdout.resume()
    await often
    const gaps = times.slice(1).map((at, index) => at - times[index])
    for (const gap of gaps) assert.ok(gap >= 995, `${gaps}`)
    await child.cancel({ graceMs: 5000 })
  })

  test('is told of stderr too, and not of what nobody reads', options, async (t) => {
    const { child, here } = await standing(t, talking(2, 20))
    await here.spawnOwned('sleep', ['0.2']).wait()
    assert.deepEqual(ofType(here, 'output'), [])
    child.stderr.resume()
    await until(() => ofType(here, 'output').length > 0, 'it was told')
    await child.cancel({ graceMs: 5000 })
  })

  test('is on record, with its time', options, async (t) => {
    const before = Date.now()
    const { child, here } = await standing(t, talking(1, 20))
    const last = () => here.list({ runId: child.runId })[0].lastOutputAtMs
    assert.equal(last(), null)
    child.stdout.resume()
    await until(() => last() !== null, 'it is on record')
    assert.ok(last() >= before && last() <= Date.now(), `${last()}`)
    await child.cancel({ graceMs: 5000 })
  })
})

describe('diagnostics_channel', () => {
  /** What is published while the test runs. */
  function subscribe(t, ...names) {
    const published = []
    for (const name of names) {
      const channel = `spawn-owned:${name}`
      const note = (event, from) => published.push([from, event])
      diagnostics.subscribe(channel, note)
      t.after(() => diagnostics.unsubscribe(channel, note))
    }
    return published
  }

  test('has the events of all supervisors, the very same ones', options, async (t) => {
    const published = subscribe(t, 'spawn', 'started', 'exiting', 'exited')
    const both = [supervise(freshRegistry()), supervise(freshRegistry())]
    for (const here of both) {
      const child = here.spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
      await child.cancel()
    }
    const told = both.flatMap(({ events }) => events)
    assert.equal(told.length, 8)
    assert.deepEqual(
      published.map(([channel]) => channel),
      told.map(({ type }) => `spawn-owned:${type}`),
    )
    for (const [index, [, event]] of published.entries()) assert.equal(event, told[index])
  })

  test('is told also if the supervisor has no listener', options, async (t) => {
    const published = subscribe(t, 'exited')
    const here = supervise(freshRegistry())
    here.removeAllListeners('event')
    const exit = await here.spawnOwned('true').wait()
    assert.deepEqual(
      published.map(([, event]) => event.exit),
      [exit],
    )
  })

  test('has the decisions of reapers', options, async (t) => {
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
    test(`disturbs no run, and is not kept quiet: ${where}`, options, async () => {
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

test('a listener may start and cancel runs', options, async (t) => {
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
