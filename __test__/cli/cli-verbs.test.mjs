// The verbs that people know from docker, systemctl and pm2: ps -a, stop, kill and inspect.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { describe, test } from 'node:test'
import { freshRegistry, supervise } from '../support/bots.mjs'
import { cli, spawnOwnedCli as so } from '../support/cli.mjs'

const options = { timeout: 60_000 }
const waits = ['-e', 'setInterval(() => {}, 1e6)']

/** A bot with a run, and its registry. */
async function withRun(t, more) {
  const registryPath = freshRegistry()
  const supervisor = supervise(registryPath)
  const child = supervisor.spawnOwned(process.execPath, waits, { stdio: 'ignore', ...more })
  t.after(() => child.cancel({ graceMs: 0 }))
  await once(child, 'spawn')
  return { registryPath, supervisor, child }
}

describe('stop and kill', options, () => {
  test('stop RUN terminates the run with this prefix', async (t) => {
    const { registryPath, child } = await withRun(t, { runId: 'worker:7', graceMs: 30_000 })
    const { code, stdout } = await so(registryPath, ['stop', 'work'])
    assert.equal(code, 0)
    assert.match(stdout, /^ending worker:7: [\s\S]*worker:7: cancelled\n$/)
    assert.equal((await child.wait()).signal, 'SIGTERM')
  })

  test('kill RUN sends SIGKILL at once', async (t) => {
    const { registryPath, child } = await withRun(t, { runId: 'a', graceMs: 30_000 })
    assert.equal((await so(registryPath, ['kill', 'a', '--dry-run'])).code, 0)
    assert.equal(child.state, 'running')
    assert.equal((await so(registryPath, ['kill', 'a'])).code, 0)
    const { signal, reason } = await child.wait()
    assert.deepEqual([signal, reason], ['SIGKILL', 'manual-cancel'])
  })

  test('refuse what is ambiguous, missing or contradictory', async (t) => {
    const { registryPath, supervisor, child } = await withRun(t, { runId: 'ab' })
    const other = supervisor.spawnOwned(process.execPath, waits, { stdio: 'ignore', runId: 'ac' })
    t.after(() => other.cancel({ graceMs: 0 }))
    for (const [args, expected] of [
      [['stop', 'a'], 3],
      [['kill', 'x'], 3],
      [['stop'], 2],
      [['kill'], 2],
      [['kill', 'ab', '--orphans'], 2],
      [['stop', 'ab', '--session', 's'], 2],
    ]) {
      const { code, stdout } = await so(registryPath, args)
      assert.deepEqual([code, stdout], [expected, ''], args.join(' '))
    }
    assert.deepEqual([child.state, other.state], ['running', 'running'])
  })
})

describe('ps -a', options, () => {
  test('lists ended runs, the latest first, after the live ones', async (t) => {
    const { registryPath, supervisor } = await withRun(t, { runId: 'alive' })
    await supervisor.run(process.execPath, ['-e', 'process.exit(3)'], { runId: 'first', sessionId: 's' })
    await supervisor.run(process.execPath, ['-e', '0'], { runId: 'second' })
    await supervisor.history()
    const { code, lines } = await so(registryPath, ['ps', '-a'])
    assert.equal(code, 0)
    const [, live, empty, header, ...ended] = lines().map((line) => line.split(/\s+/))
    assert.deepEqual([live[0], empty], ['alive', ['']])
    assert.deepEqual(header, ['RUN', 'SESSION', 'REASON', 'EXIT', 'ENDED', 'TOOK', 'COMMAND'])
    assert.deepEqual(
      ended.map((cells) => cells.slice(0, 4)),
      [
        ['second', '-', 'exit', '0'],
        ['first', 's', 'exit', '3'],
      ],
    )
    const { json } = await so(registryPath, ['ps', '--all', '--session', 's', '--json'])
    assert.deepEqual(
      [json().runs, json().ended.map(({ runId, exitCode }) => [runId, exitCode])],
      [[], [['first', 3]]],
    )
    assert.equal('ended' in (await so(registryPath, ['ps', '--json'])).json(), false)
  })
})

describe('inspect', options, () => {
  test('shows a live run like show, and an ended run with its end', async (t) => {
    const { registryPath, supervisor, child } = await withRun(t, { runId: 'alive', metadata: { turn: 1 } })
    const [shown, inspected] = await Promise.all(
      ['show', 'inspect'].map((verb) => so(registryPath, [verb, 'ali', '--json'])),
    )
    assert.deepEqual([inspected.json().pid, inspected.json().metadata], [child.pid, { turn: 1 }])
    assert.equal(shown.json().pid, child.pid)
    await supervisor.run(process.execPath, ['-e', 'process.exit(3)'], { runId: 'ended' })
    await supervisor.history()
    const { code, stdout } = await so(registryPath, ['inspect', 'end'])
    assert.equal(code, 0)
    assert.match(stdout, /^run +ended$/m)
    assert.match(stdout, /^message +exited with code 3$/m)
    const { state, exitCode } = (await so(registryPath, ['inspect', 'ended', '--json'])).json()
    assert.deepEqual([state, exitCode], ['exited', 3])
    assert.equal((await so(registryPath, ['inspect', 'nothing'])).code, 3)
  })
})

describe('a RUN', options, () => {
  test('that is an exact id wins over ids that start with it, live or ended', async (t) => {
    const { registryPath, supervisor, child } = await withRun(t, { runId: 'a-1' })
    const other = supervisor.spawnOwned(process.execPath, waits, { stdio: 'ignore', runId: 'a-12' })
    t.after(() => other.cancel({ graceMs: 0 }))
    await supervisor.run(process.execPath, ['-e', 'process.exit(3)'], { runId: 'a' })
    await supervisor.history()
    const runIds = async (...args) => (await so(registryPath, [...args, '--json'])).json()
    assert.equal((await runIds('inspect', 'a')).exitCode, 3)
    for (const verb of ['inspect', 'show']) assert.equal((await runIds(verb, 'a-1')).pid, child.pid)
    assert.equal((await runIds('tree', 'a-1')).runs[0].pid, child.pid)
    for (const verb of ['cancel', 'stop', 'kill']) {
      const { runs } = await runIds(verb, 'a-1', '--dry-run')
      assert.deepEqual(
        runs.map(({ pid }) => pid),
        [child.pid],
      )
    }
  })

  test('that is an ambiguous prefix is an error, which lists the candidates', async (t) => {
    const { registryPath, supervisor, child } = await withRun(t, { runId: 'ab' })
    const other = supervisor.spawnOwned(process.execPath, waits, { stdio: 'ignore', runId: 'ac' })
    t.after(() => other.cancel({ graceMs: 0 }))
    await supervisor.run(process.execPath, ['-e', '0'], { runId: 'ad' })
    await supervisor.history()
    for (const verb of ['stop', 'kill', 'cancel', 'tree', 'inspect', 'show']) {
      const { code, stdout, stderr } = await so(registryPath, [verb, 'a'])
      assert.deepEqual([code, stdout], [3, ''], verb)
      const ended = ['inspect', 'show'].includes(verb)
      assert.match(stderr, ended ? /"a" matches 3 runs: / : /"a" matches 2 runs: /)
      for (const id of ['ab', 'ac', ...(ended ? ['ad'] : [])]) assert.match(stderr, new RegExp(`\\b${id}\\b`))
    }
    assert.deepEqual([child.state, other.state], ['running', 'running'])
  })
})

test('events -f prints reason and exit code of a run that ends', options, async (t) => {
  const { registryPath, supervisor, child } = await withRun(t, { runId: 'alive' })
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: registryPath }
  const follower = spawn(process.execPath, [cli, 'events', '-f', '--json'], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => follower.kill('SIGKILL'))
  const lines = createInterface(follower.stdout)[Symbol.asyncIterator]()
  const next = async (what) => {
    for (;;) {
      const { value } = await lines.next()
      const event = JSON.parse(value)
      if (event.what === what) return event
    }
  }
  // It follows when it reports a run that starts now.
  const others = []
  const timer = setInterval(() => {
    const runId = `other-${others.length}`
    others.push(supervisor.spawnOwned(process.execPath, waits, { stdio: 'ignore', runId }))
  }, 200)
  await next('appeared')
  clearInterval(timer)
  await child.cancel()
  let gone = await next('gone')
  while (gone.runId !== 'alive') gone = await next('gone')
  assert.deepEqual([gone.reason, gone.exitCode, gone.signal], ['manual-cancel', null, 'SIGTERM'])
  await Promise.all(others.map((other) => other.cancel({ graceMs: 0 })))
})
