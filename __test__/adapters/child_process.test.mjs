// spawn-owned/child_process compared with node:child_process: exec, execFile, fork and their
// promisified forms do the same, and own the processes that they start.
// (spawn is spawnOwned: see drop-in.test.mjs.)
import nodes, { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import owned from 'spawn-owned/child_process'
import { freshRegistry } from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { after, assert, describe, openWitness, script, test } from '../support/prelude.mjs'
import { isNode, NO_CHANNELS, NOT_NODES, nodeOnly, posixOnly } from '../support/system.mjs'
import { waysToStart } from '../support/ways-to-start.mjs'

const dir = realpathSync(mkdtempSync(join(tmpdir(), 'child_process-')))
after(() => rmSync(dir, { recursive: true, maxRetries: 10 }))
const options = { timeout: 60_000 }
const CMD = "the line is for a POSIX shell, and exec's own is cmd.exe on Windows"
const onPosix = posixOnly(CMD, options)
/** The test options that restrict a function to the systems and runtimes that have it. */
const where = (way) => {
  if (way === 'fork') return nodeOnly(NO_CHANNELS, options)
  return /\bexec\b/.test(way) ? onPosix : options
}

/** Runs `scenario` with Node's module and with ours, and compares the results. */
function same(name, scenario, more = options) {
  test(name, nodeOnly(NOT_NODES, more), async (t) => {
    const theirs = await scenario(nodes, t)
    assert.ok(theirs !== undefined && theirs?.length !== 0, 'the scenario returned nothing')
    assert.deepEqual(await scenario(owned, t), theirs)
  })
}

const sameOnPosix = (name, scenario) => same(name, scenario, onPosix)

/** All properties of an error that a caller can see. */
function facts(error) {
  if (!(error instanceof Error)) return error
  const { name, message, cause } = error
  return { ...error, name, message, cause: cause && facts(cause) }
}

function thrownBy(action) {
  try {
    action()
  } catch (error) {
    return facts(error)
  }
  return assert.fail('nothing was thrown')
}

/** Resolves with the arguments of the callback and the state of the process at that time. */
function calledBack(start) {
  return new Promise((resolve) => {
    const child = start((error, stdout, stderr) => {
      const { killed, exitCode, signalCode } = child
      resolve({ error: facts(error), stdout, stderr, killed, exitCode, signalCode })
    })
  })
}

const promised = (promise) =>
  promise.then(
    (value) => ({ value }),
    (error) => ({ error: facts(error) }),
  )

describe('exec calls back as Node’s does for', () => {
  const calls = {
    success: ['echo out; echo err >&2'],
    'no output': ['true'],
    'an exit code': ['echo out; echo err >&2; exit 3'],
    'a signal': ['echo out; kill -9 $$'],
    'a command that is not found': ['/nonexistent-command 2>&-'],
    'another shell': ['echo "$BASH"', { shell: '/bin/bash' }],
    'a shell that is not found': ['true', { shell: '/nonexistent' }],
    'a folder': ['pwd', { cwd: dir }],
    'a folder as URL': ['pwd', { cwd: pathToFileURL(dir) }],
    'a folder that does not exist': ['pwd', { cwd: '/nonexistent' }],
    'an environment': ['echo $A', { env: { A: 'a', PATH: process.env.PATH } }],
    'null for options': ['true', null],
    'options that exec does not take': ['echo "$0"', { stdio: 'ignore', detached: true, argv0: 'x' }],
    'text in another encoding': ['printf "\\344\\303\\244"', { encoding: 'latin1' }],
    'text as hex': ['echo text', { encoding: 'hex' }],
    'a buffer': ['echo text; echo err >&2', { encoding: 'buffer' }],
    'a buffer, by null': ['echo text', { encoding: null }],
    'an unknown encoding': ['echo text', { encoding: 'klingon' }],
    'a failure, as buffers': ['echo text; exit 1', { encoding: 'buffer' }],
    'more than maxBuffer': ['echo "hello world"; exec sleep 100', { maxBuffer: 5 }],
    'more than maxBuffer on stderr': ['echo "hello world" >&2; exec sleep 100', { maxBuffer: 5 }],
    'more than maxBuffer, as buffer': [
      'echo "hello world"; exec sleep 100',
      { maxBuffer: 5, encoding: null },
    ],
    'more than maxBuffer, in two bytes each': ['printf ää; exec sleep 100', { maxBuffer: 3 }],
    'more than maxBuffer, and SIGKILL': ['echo x; exec sleep 100', { maxBuffer: 1, killSignal: 'SIGKILL' }],
    'exactly maxBuffer': ['printf hello', { maxBuffer: 5 }],
    'a maxBuffer of 0': ['echo x; exec sleep 100', { maxBuffer: 0 }],
    'no limit': ['head -c 2000000 /dev/zero | tr "\\0" x', { maxBuffer: Infinity }],
    'the default limit': ['head -c 2000000 /dev/zero | tr "\\0" x; exec sleep 100'],
    'undefined as limit': ['head -c 1100000 /dev/zero | tr "\\0" x', { maxBuffer: undefined }],
    'a timeout': ['exec sleep 100', { timeout: 50 }],
    'a timeout with SIGKILL': ['exec sleep 100', { timeout: 50, killSignal: 'SIGKILL' }],
    'a timeout with the number of a signal': ['exec sleep 100', { timeout: 50, killSignal: 2 }],
    'a timeout that does not expire': ['echo quick', { timeout: 50_000 }],
  }
  for (const [what, args] of Object.entries(calls)) {
    sameOnPosix(what, (cp) => calledBack((done) => cp.exec(...args, done)))
    sameOnPosix(`${what}, promisified`, (cp) => promised(promisify(cp.exec)(...args)))
  }

  for (const line of ['echo out', 'exit 3', 'cd /nonexistent'])
    same(`${line}, in the default shell`, (cp) => calledBack((done) => cp.exec(line, done)))
})

describe('execFile calls back as Node’s does for', () => {
  const calls = {
    'a file': ['pwd'],
    arguments: ['printf', ['%s|', 'a', 'b c', '"']],
    'options without arguments': ['pwd', { cwd: dir }],
    'null for arguments': ['pwd', null, { cwd: dir }],
    'null for both': ['pwd', null, null],
    'an exit code': ['sh', ['-c', 'exit 3']],
    'a command that is not found': ['/nonexistent', ['a', 'b']],
    'a file that cannot be executed': ['/etc/passwd'],
    'a shell': ['echo $((1 + 1))', { shell: true }],
    'a signal that was aborted before': ['sleep', ['100'], { signal: AbortSignal.abort(new Error('why')) }],
  }
  for (const [what, args] of Object.entries(calls)) {
    sameOnPosix(what, (cp) => calledBack((done) => cp.execFile(...args, done)))
    sameOnPosix(`${what}, promisified`, (cp) => promised(promisify(cp.execFile)(...args)))
  }

  sameOnPosix('a signal that is aborted later', (cp) => {
    const controller = new AbortController()
    const outcome = calledBack((done) => cp.execFile('sleep', ['100'], { signal: controller.signal }, done))
    controller.abort()
    return outcome
  })

  sameOnPosix('what is written to it', (cp) =>
    calledBack((done) => {
      const child = cp.execFile('cat', done)
      child.stdin.end('written')
      return child
    }),
  )

  sameOnPosix('an encoding that the caller sets on the stream', (cp) =>
    calledBack((done) => {
      const child = cp.execFile('echo', ['text'], { encoding: 'buffer' }, done)
      child.stdout.setEncoding('utf8')
      return child
    }),
  )

  sameOnPosix('a process without a callback', async (cp) => {
    const child = cp.execFile('sh', ['-c', 'exit 3'])
    return once(child, 'close')
  })

  sameOnPosix('a process that is killed', (cp) =>
    calledBack((done) => {
      const child = cp.execFile('sleep', ['100'], done)
      child.kill('SIGINT')
      return child
    }),
  )
})

describe('invalid arguments cause the same error as in Node, in', () => {
  const nothing = () => {}
  const wrong = {
    exec: [
      [],
      [7],
      ['a\0b'],
      [''],
      ['true', { cwd: 7 }],
      ['true', { timeout: -1 }],
      ['true', { timeout: 1.5 }],
      ['true', { timeout: '1' }],
      ['true', { maxBuffer: -1 }],
      ['true', { maxBuffer: '1' }],
      ['true', { maxBuffer: NaN }],
      ['true', { killSignal: 'SIGNONE' }],
      ['true', { killSignal: {} }],
      ['true', { signal: 'none' }],
      ['true', {}, 'no function'],
    ],
    execFile: [
      [],
      [''],
      ['a\0b'],
      ['true', 7],
      ['true', 'x'],
      ['true', ['a\0b']],
      ['true', [], 7],
      ['true', [], 'x'],
      ['true', [], []],
      ['true', [], {}, 7],
      ['true', { shell: 7 }],
      ['true', { argv0: 7 }],
      ['true', { argv0: 'a\0b' }],
      ['true', { uid: 'root' }],
      ['true', { windowsHide: 1, maxBuffer: null, timeout: null, killSignal: null, signal: null }, nothing],
    ],
    fork: [
      [],
      [7],
      [null],
      ['a\0b'],
      [Buffer.from('a\0b')],
      [new URL('https://example.org/')],
      ['x', 7],
      ['x', 'y'],
      ['x', [], 7],
      ['x', [], []],
      ['x', [], { stdio: 'ipc' }],
      ['x', [], { stdio: ['pipe', 'pipe', 'pipe'] }],
      ['x', [], { stdio: ['ipc', 'ipc', 'pipe'] }],
      ['x', [], { execPath: 'a\0b' }],
      ['x', [], { execArgv: ['a\0b'] }],
      ['x', [], { serialization: 'yaml' }],
      ['x', ['a\0b']],
    ],
  }
  for (const [name, calls] of Object.entries(wrong)) {
    for (const args of calls) {
      same(
        `${name}(${args.map((arg) => (typeof arg === 'object' ? JSON.stringify(arg) : String(arg)))})`,
        (cp) => thrownBy(() => cp[name](...args)),
      )
    }
  }
  for (const name of ['exec', 'execFile'])
    same(`promisified ${name}, by throwing`, (cp) => thrownBy(() => promisify(cp[name])(7)))
})

describe('fork starts as Node’s does', () => {
  const REPORTS = script('reports-how-it-was-forked.mjs')
  const ZERO = join(dir, '0.mjs')
  copyFileSync(REPORTS, ZERO)
  /** Forks a script and returns its messages, its output and its exit. */
  async function forked(cp, ...args) {
    const child = cp.fork(...args)
    const [messages, output] = [[], { stdout: '', stderr: '' }]
    child.on('message', (message) => messages.push(message))
    for (const name of ['stdout', 'stderr'])
      child[name]?.on('data', (text) => {
        output[name] += text
      })
    child.send({ hello: new Map([[1, 2]]) })
    const ended = await once(child, 'close')
    const { connected, spawnfile, spawnargs } = child
    return { messages, output, ended, connected, spawnfile, spawnargs }
  }
  const quiet = { silent: true }
  const calls = {
    'a script': [REPORTS, [], quiet],
    'with arguments': [REPORTS, ['a', 'b c'], quiet],
    'with options only': [REPORTS, quiet],
    'with null for arguments': [REPORTS, null, quiet],
    'a script with a digit in its name': [ZERO, quiet],
    'a URL': [pathToFileURL(REPORTS), quiet],
    'a path as buffer': [Buffer.from(REPORTS), quiet],
    'with arguments for Node': [REPORTS, { ...quiet, execArgv: ['--no-warnings'] }],
    'another program': [REPORTS, { ...quiet, execPath: '/usr/bin/env', execArgv: ['node'] }],
    'with another serialization': [REPORTS, { ...quiet, serialization: 'advanced' }],
    'with stdio as text': [REPORTS, { stdio: 'pipe' }],
    'with nothing for stdio': [REPORTS, { stdio: 'ignore' }],
    'with a channel at another descriptor': [REPORTS, { stdio: ['ignore', 'pipe', 'pipe', 'ignore', 'ipc'] }],
    'with its own environment': [REPORTS, { ...quiet, env: { A: 'a' } }],
    'without a shell, even with the option shell': [REPORTS, { ...quiet, shell: true }],
  }
  for (const [what, args] of Object.entries(calls)) {
    const more = what === 'another program' ? posixOnly('only POSIX systems have env', options) : options
    same(what, (cp) => forked(cp, ...args), more)
  }

  same('a script that an AbortSignal ends', async (cp) => {
    const controller = new AbortController()
    const child = cp.fork(REPORTS, { silent: true, signal: controller.signal, killSignal: 'SIGKILL' })
    const failed = once(child, 'error')
    controller.abort(new Error('why'))
    return [facts((await failed)[0]), child.killed, await once(child, 'exit')]
  })

  same('a script without the -e code of the parent', (cp) => {
    const name = cp === nodes ? 'child_process' : 'spawn-owned/child_process'
    const code = `const child = require('${name}').fork(process.argv[1], [], { silent: true })
      child.on('message', ({ execArgv }) => console.log(execArgv)).send('tell')`
    const args = ['--no-warnings', '-e', code, '--', REPORTS]
    return nodes.execFileSync(process.execPath, args, { cwd: script('.'), encoding: 'utf8', timeout: 30_000 })
  })
})

describe('no process is left of a tree that is started by', () => {
  const tree = treeNamed('double-fork-daemon')
  /** Starts a tree with a member that has left session, group and parent; waits until ready. */
  async function standing(t, way, more) {
    const witness = openWitness(t)
    const child = waysToStart[way](owned, ...tree.command(witness.path), more)
    child.on('error', () => {})
    await witness.ready(tree.ready)
    return { witness, child }
  }
  const endings = {
    'a cancel': (child) => child.cancel(),
    'a kill of the root': (child) => child.kill('SIGKILL'),
    'the exit of the root': (child) => (child.connected ? child.disconnect() : child.stdin.end()),
  }
  const how = { 'the exit of the root': { onLeaderExit: 'kill' } }
  for (const way of Object.keys(waysToStart)) {
    for (const [ending, end] of Object.entries(endings)) {
      test(`${way}, after ${ending}`, where(way), async (t) => {
        // By default the descendants of a root that exits by itself stay, see keeps-descendants.
        const { witness, child } = await standing(t, way, how[ending])
        end(child)
        const { survivors } = await child.wait()
        assert.ok(witness.isGone(), `processes exist:\n${witness.holders()}`)
        assert.deepEqual(survivors, [])
      })
    }

    test(`${way}, after SIGKILL of the bot`, where(way), async (t) => {
      const witness = openWitness(t)
      const [file, args] = tree.command(witness.path)
      const bot = spawn(
        process.execPath,
        [script('bot-of-child-process.mjs'), 'spawn-owned/child_process', way, file, ...args],
        {
          stdio: ['pipe', 'ignore', 'inherit'],
          env: { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() },
        },
      )
      t.after(() => bot.kill('SIGKILL'))
      await witness.ready(tree.ready)
      bot.kill('SIGKILL')
      await witness.gone(30_000)
    })
  }

  for (const way of ['exec', 'execFile']) {
    test(`${way}, after a timeout`, where(way), async (t) => {
      const { witness, child } = await standing(t, way, { timeout: 5000 })
      const { reason } = await child.wait()
      assert.ok(witness.isGone())
      assert.equal(reason, 'overall-timeout')
    })

    test(`${way}, after an abort`, where(way), async (t) => {
      const controller = new AbortController()
      const { witness, child } = await standing(t, way, { signal: controller.signal })
      controller.abort()
      const { reason } = await child.wait()
      assert.ok(witness.isGone())
      assert.equal(reason, 'manual-cancel')
    })
  }

  test('exec, after too much output, if a grandchild ignores SIGTERM', onPosix, async (t) => {
    const witness = openWitness(t)
    const [file, [path]] = treeNamed('ignores-sigterm').command(witness.path)
    const child = owned.exec(`'${file}' '${path}' & read -r _; yes`, { maxBuffer: 10, graceMs: 200 })
    await witness.ready(treeNamed('ignores-sigterm').ready)
    child.stdin.write('\n')
    const { reason } = await child.wait()
    assert.ok(witness.isGone())
    assert.equal(reason, 'manual-cancel')
  })

  test('takes the options of a run', options, async () => {
    for (const start of [owned.exec, owned.execFile]) {
      const child = start('cat', { runId: 'of-its-own', sessionId: 'a session', labels: { a: 'b' } })
      assert.deepEqual([child.runId, child.sessionId, child.labels], ['of-its-own', 'a session', { a: 'b' }])
      assert.equal((await child.cancel({ graceMs: 1 })).reason, 'manual-cancel')
    }
  })
})

test('keys that Node ignores are ignored, even if they resemble an option of a run', options, async () => {
  const foreign = { label: 'of another package', limit: 3, timeoutms: 1 }
  const child = owned.spawn(process.execPath, ['-e', ''], foreign)
  assert.deepEqual(await once(child, 'close'), [0, null])
  assert.equal((await promisify(owned.execFile)(process.execPath, ['-e', ''], foreign)).stdout, '')
})

test('fork is refused in runtimes other than Node', { skip: isNode && 'this is Node' }, () => {
  assert.throws(() => owned.fork(script('starts-a-command.mjs')), { code: 'ERR_OWNED_RUNTIME' })
})

test('the synchronous functions are Node’s own', () => {
  for (const name of ['spawnSync', 'execSync', 'execFileSync']) assert.equal(owned[name], nodes[name])
})
