// spawnOwned in the place of child_process.spawn: the ChildProcess that it returns, compared with
// Node's.
import { ChildProcess } from 'node:child_process'
import diagnostics from 'node:diagnostics_channel'
import { once } from 'node:events'
import { facts, major, record, same, spawn, spawnOwned } from '../fixtures/side-by-side.mjs'
import { assert, describe, openWitness, program, script, test } from '../support/prelude.mjs'
import { GRACE_FOR_ALL_MS } from '../support/system.mjs'

const options = { timeout: 20_000 }

describe('the process reacts as in child_process to', () => {
  const given = [[], ['SIGKILL'], [9], ['sigint'], [0], ['SIGSTOP'], [undefined]]
  const wrong = [['SIGNONE'], [''], [999], [-1], [null], [{}], [true], [1.5], ['9'], [NaN]]
  for (const args of [...given, ...wrong]) {
    same(`kill(${args.map(String)})`, async (start) => {
      const child = start('cat')
      const ended = record(child)
      const seen = []
      const attempt = (...signals) => {
        try {
          seen.push([child.kill(...signals), child.killed])
        } catch (error) {
          seen.push([facts(error), child.killed])
        }
      }
      attempt(...args)
      attempt(...args)
      attempt('SIGKILL')
      const { log } = await ended
      attempt()
      attempt(...args)
      attempt(0)
      return [...seen, log.map(([event]) => event)]
    })
  }

  same('a signal that the command handles', async (start) => {
    const child = start('sh', ['-c', 'trap "echo caught; exit 7" TERM; echo ready; read _'])
    const ended = record(child)
    await once(child.stdout, 'data')
    child.kill()
    return ended
  })

  same('Symbol.dispose', async (start) => {
    const child = start('cat')
    const ended = record(child)
    child[Symbol.dispose]()
    const { killed } = child
    return [killed, await ended]
  })

  test('Symbol.asyncDispose, which ends the tree before it resolves', options, async (t) => {
    const witness = openWitness(t)
    const child = spawnOwned(program('half-setsid'), [witness.path], { graceMs: GRACE_FOR_ALL_MS })
    await witness.ready(33)
    await child[Symbol.asyncDispose]()
    assert.ok(witness.isGone(), witness.holders())
    assert.equal((await child.wait()).reason, 'manual-cancel')
  })
})

describe('the bot', () => {
  /** Runs a bot and returns its output. `held`: the bot waits for the end of its command. */
  const bot = (steps, held) => async (start) => {
    const child = spawn(process.execPath, [script('bot-unrefs-its-child.mjs'), start.name, ...steps])
    if (held) child.stdin.end()
    const { stdout, stderr } = await record(child)
    assert.equal(stderr, '')
    assert.equal(stdout.startsWith('command exited with 0'), held)
    return stdout
  }
  same('lives as long as its command', bot([], true))
  same('does not wait for a command after unref()', bot(['unref'], false))
  same('waits again for a command after ref()', bot(['unref', 'unref', 'ref'], true))
  same('does not wait for a command if unref() is the last call', bot(['ref', 'ref', 'unref'], false))
  same('does not wait for a command that has exited', bot(['late'], true))
})

describe('the result is a ChildProcess', () => {
  same('with its members', async (start) => {
    const child = start('true')
    await record(child)
    const methods = ['kill', 'ref', 'unref', 'on', 'emit', 'send', 'disconnect', Symbol.dispose]
    return [
      ...[child instanceof ChildProcess, Object.getPrototypeOf(child) !== null, 'channel' in child],
      ...methods.map((name) => typeof child[name]),
      ...['pid', 'stdin', 'stdout', 'stderr', 'stdio', 'killed', 'exitCode', 'spawnargs'].map(
        (name) => name in child,
      ),
    ]
  })

  const published = (names, start, ...args) => {
    const seen = []
    const listeners = names.map((name) => [name, (message) => seen.push([name, message])])
    for (const [name, listener] of listeners) diagnostics.subscribe(name, listener)
    let child
    try {
      child = start(...args).on('error', () => {})
    } catch {}
    for (const [name, listener] of listeners) diagnostics.unsubscribe(name, listener)
    return seen.map(([name, { process, error, options }]) => [
      ...[name, process instanceof ChildProcess, child && process === child, facts(error), typeof options],
    ])
  }
  const calls = [
    ['true'],
    ['nonexistent-command'],
    ['true', { stdio: ['ignore', 9999] }],
    ['true', { cwd: '\0' }],
  ]
  for (const args of calls) {
    same(`that is published on diagnostics_channel: ${JSON.stringify(args)}`, (start) => [
      'published',
      ...published(['child_process'], start, ...args),
    ])
    const traced = ['start', 'end', 'error'].map((name) => `tracing:child_process.spawn:${name}`)
    const skip = major < 26 && `Node ${major} has no such channel`
    same(
      `that is published on the tracing channels: ${JSON.stringify(args)}`,
      (start) => ['published', ...published(traced, start, ...args)],
      {
        skip,
      },
    )
  }

  same('although Object.prototype has extra properties', async (start) => {
    const pollution = {
      uid: 1,
      gid: 1,
      shell: true,
      cwd: '/nonexistent',
      stdio: 'ignore',
      argv0: 'x',
      timeout: 1,
    }
    const ours = {
      runId: ':',
      graceMs: 'x',
      labels: 7,
      pty: true,
      onOwnerExit: 'x',
      fd: 7,
      errno: 2,
      env: { A: 1 },
    }
    const names = Object.keys({ ...pollution, ...ours })
    for (const name of names) {
      const value = { ...pollution, ...ours }[name]
      Object.defineProperty(Object.prototype, name, { value, configurable: true, writable: true })
    }
    let child
    try {
      child = start('echo', ['$HOME'], {})
    } finally {
      for (const name of names) delete Object.prototype[name]
    }
    return await record(child)
  })
})
