// spawnOwned in place of child_process.spawn: same arguments, same members, same events in the same
// order.
// Other files: errors (errors.test.mjs), descriptors and streams (stdio.test.mjs), channels
// (ipc.test.mjs), cancel (cancel.test.mjs).
import { AsyncLocalStorage } from 'node:async_hooks'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import {
  environCommand,
  output,
  record,
  run,
  same,
  sameOnLinux,
  sameOnPosix,
  spawnOwned,
} from '../fixtures/side-by-side.mjs'
import { after, assert, describe, script, test } from '../support/prelude.mjs'
import { isWindows, linuxOnly, NO_INTERPRETERS, NO_PROC, NO_SIGNALS, posixOnly } from '../support/system.mjs'

const dir = realpathSync(mkdtempSync(join(tmpdir(), 'drop-in-')))
after(() => rmSync(dir, { recursive: true, maxRetries: 10 }))
const at = (name) => join(dir, name)
mkdirSync(at('a b'))
writeFileSync(at('hello'), '#!/bin/sh\necho hello "$@"\n', { mode: 0o755 })
writeFileSync(at('no-shebang'), 'echo $# arguments\n', { mode: 0o755 })

const home = process.cwd()
const asRoot = process.getuid?.() === 0 ? false : 'only root may become another user'
const options = { timeout: 20_000 }

describe('spawnOwned accepts, like spawn,', () => {
  const zero = ['-c', 'echo "$0"']
  const calls = {
    'a command': ['pwd'],
    'command and arguments': ['printf', ['%s|', 'a', 'b c', '', '"', 'ä\u{1f600}', '\n']],
    'command and options': ['pwd', { cwd: '/' }],
    'null for arguments': ['pwd', null, { cwd: '/' }],
    'undefined for arguments': ['pwd', undefined, { cwd: '/' }],
    'undefined for options': ['echo', ['a'], undefined],
    'arguments that are not strings': ['echo', [1, null, undefined, true, { toString: () => 'text' }]],
    'frozen arguments and options': ['pwd', Object.freeze([]), Object.freeze({ cwd: '/' })],
    'own options only': ['pwd', Object.create({ cwd: '/' })],
    'options for Windows': ['pwd', { windowsHide: true, windowsVerbatimArguments: true }],
    'null for every option': [
      'pwd',
      { cwd: null, uid: null, gid: null, shell: null, argv0: null, env: null },
    ],
    'a hundred thousand arguments': ['sh', ['-c', 'echo $#', 'sh', ...Array(100_000).fill('x')]],
    'a hundred thousand arguments for a script without #!': [at('no-shebang'), Array(100_000).fill('x')],
    'cwd as a path': ['pwd', { cwd: dir }],
    'cwd as a relative path': ['pwd', { cwd: '..' }],
    'cwd as a URL': ['pwd', { cwd: pathToFileURL(at('a b')) }],
    'an empty cwd': ['pwd', { cwd: '' }],
    'a command relative to cwd': ['./hello', { cwd: dir }],
    argv0: ['sh', zero, { argv0: 'another name' }],
    'an empty argv0': ['sh', zero, { argv0: '' }],
    'argv0 with a shell': ['echo "$0"', { argv0: 'another name', shell: true }],
    'shell: true': ['echo $((1 + 1)) | cat', { shell: true }],
    'shell: true with arguments': ['echo', ['a', '$((1 + 1))', '"b'.slice(1)], { shell: true }],
    'shell: false': ['echo', ['$HOME'], { shell: false }],
    'an empty shell': ['echo', ['$HOME'], { shell: '' }],
    'another shell': ['echo $BASH', { shell: '/bin/bash' }],
    'a shell found in PATH': ['echo $BASH', { shell: 'bash' }],
    'detached: true': ['pwd', { detached: true }],
  }
  process.removeAllListeners('warning')
  process.on('warning', () => {})
  const notOnWindows = {
    'a hundred thousand arguments': 'no command line on Windows is that long',
    'a hundred thousand arguments for a script without #!': NO_INTERPRETERS,
    'a command relative to cwd': NO_INTERPRETERS,
  }
  for (const [what, args] of Object.entries(calls)) {
    sameOnPosix(notOnWindows[what])(what, async (start) => {
      const child = start(...args)
      const { spawnfile, spawnargs } = child
      return { spawnfile, spawnargs: spawnargs.slice(0, 9), ...(await record(child)) }
    })
  }

  sameOnLinux(NO_PROC)('the current directory of the bot', async (start, t) => {
    t.after(() => process.chdir(home))
    process.chdir(at('a b'))
    const seen = [await output(start, 'pwd'), await output(start, './hello', { cwd: '..' })]
    mkdirSync(at('gone'))
    process.chdir(at('gone'))
    rmSync(at('gone'), { recursive: true, maxRetries: 10 })
    return [...seen, await output(start, 'readlink', ['/proc/self/cwd'])]
  })

  for (const ids of [{ uid: 65534 }, { gid: 65534 }, { uid: 65534, gid: 65534 }, { uid: 0, gid: 0 }]) {
    const become = async (start, t) => {
      const groups = process.getgroups()
      t.after(() => process.setgroups(groups))
      process.setgroups([7, 8])
      return (await output(start, 'sh', ['-c', 'id -u; id -g; id -G'], ids)).split('\n')
    }
    same(`uid and gid as root: ${JSON.stringify(ids)}`, become, { skip: asRoot })
  }
})

describe('the command gets', () => {
  const ENVIRON = environCommand()
  const base = { PATH: process.env.PATH }
  const environments = {
    'only the given environment': {},
    'all variables in the given order': { b: '1', a: '2', C: '3', B: '4', 9: '5' },
    'no variable that is undefined': { a: undefined, b: 'b' },
    'every other value as text': { n: null, t: true, z: 0, e: '', o: { toString: () => 'o' }, l: [1, 2] },
    'inherited variables': Object.create({ inherited: '1' }, { own: { value: '2', enumerable: true } }),
    'unusual variable names': { 'a=b': 'c', ' ': 'x', ä: 'ö', 'a\nb': 'c\nd' },
  }
  /** Returns the environment as the kernel has it, without SPAWN_OWNED_RUN. */
  const environ = async (start, more) => {
    const pairs = (await output(start, ...ENVIRON, more)).split('\0').slice(0, -1)
    if (isWindows) return pairs.filter((pair) => !pair.startsWith('SPAWN_OWNED_RUN='))
    return start.name === 'spawn' ? pairs : pairs.slice(0, -1)
  }
  for (const [what, env] of Object.entries(environments)) {
    same(what, async (start) => ['list', ...(await environ(start, { env }))])
  }

  same('the environment at the time of the call', async (start, t) => {
    t.after(() => delete process.env.CALLED_AT)
    process.env.CALLED_AT = 'one'
    const first = environ(start)
    process.env.CALLED_AT = 'two'
    return [await first, await environ(start, {}), await environ(start, { env: null })]
  })

  same('NODE_V8_COVERAGE of the bot, whatever env is given', async (start, t) => {
    const before = process.env.NODE_V8_COVERAGE
    t.after(() =>
      before === undefined
        ? delete process.env.NODE_V8_COVERAGE
        : Object.assign(process.env, { NODE_V8_COVERAGE: before }),
    )
    process.env.NODE_V8_COVERAGE = dir
    const given = [
      { env: { A: '1' } },
      { env: { NODE_V8_COVERAGE: 'another-folder' } },
      { env: { NODE_V8_COVERAGE: undefined } },
    ]
    return Promise.all(given.map((more) => environ(start, more)))
  })

  sameOnPosix(NO_INTERPRETERS)('a search in the PATH of its own environment', async (start) => [
    await run(start, 'hello', ['you'], { env: { PATH: dir } }),
    await run(start, 'no-shebang', ['you'], { env: { PATH: `/nonexistent::${dir}` } }),
    await run(start, 'hello', { env: {} }),
    await run(start, 'echo', ['default'], { env: {} }),
  ])

  test('its run id in the last variable', options, async () => {
    for (const env of [undefined, {}, { SPAWN_OWNED_RUN: 'a lie', z: '1' }]) {
      const child = spawnOwned(...ENVIRON, { runId: 'this-run', env })
      const pairs = (await record(child)).stdout.split('\0').slice(0, -1)
      await child.wait()
      // Windows sorts the variables.
      const isCookie = (pair) => /^SPAWN_OWNED_RUN=this-run:~[0-9a-f]{32}$/.test(pair)
      if (isWindows) assert.ok(pairs.some(isCookie))
      else assert.ok(isCookie(pairs.at(-1)), pairs.at(-1))
      assert.equal(pairs.filter((pair) => pair.startsWith('SPAWN_OWNED_RUN=')).length, 1)
    }
  })

  test('the ids and keys of all its owners, outermost first', options, async () => {
    const nested = `const { spawnOwned } = require('spawn-owned')
      spawnOwned('sh', ['-c', 'echo $SPAWN_OWNED_RUN'], { runId: 'inner', stdio: 'inherit', env: ${isWindows ? '{ PATH: process.env.PATH }' : '{}'} })`
    const child = spawnOwned(process.execPath, ['-e', nested], { runId: 'outer', cwd: script('.') })
    assert.match((await record(child)).stdout, /^outer:~([0-9a-f]{32}):inner:~(?!\1)[0-9a-f]{32}\n$/)
  })

  test(
    'its own session and group before spawnOwned returns its PID',
    linuxOnly(NO_PROC, options),
    async () => {
      for (const more of [{}, { shell: true }, { detached: true }, { detached: false }]) {
        const children = Array.from({ length: 10 }, () => {
          const child = spawnOwned('cat', more)
          const stat = readFileSync(`/proc/${child.pid}/stat`, 'utf8')
          const [, , group, session, terminal] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
          assert.deepEqual([group, session, terminal], [String(child.pid), String(child.pid), '0'])
          return child
        })
        await Promise.all(children.map((child) => child.cancel()))
      }
    },
  )

  sameOnLinux(NO_PROC)('default signal handling, as in a new process', async (start, t) => {
    // Node itself ignores SIGPIPE and SIGXFSZ.
    const caught = ['SIGINT', 'SIGHUP', 'SIGTERM', 'SIGCHLD', 'SIGUSR2']
    for (const signal of caught) process.on(signal, () => {})
    t.after(() => caught.map((signal) => process.removeAllListeners(signal)))
    const status = await output(start, 'cat', ['/proc/self/status'], { env: base })
    return status.match(/^Sig(Blk|Ign|Cgt|Pnd):.*$/gm)
  })
})

describe('the events are right for', () => {
  const endings = {
    'exit 0': 'exit 0',
    'exit 255': 'exit 255',
    'a signal': 'kill -KILL $$',
    'a signal that dumps core': 'ulimit -c 0; kill -ABRT $$',
    'much output before the exit': 'yes | head -c 300000; exit 3',
    'streams that close before the exit': 'exec <&- >&- 2>&-; sleep 0.05; exit 4',
  }
  const state = ({ pid, exitCode, signalCode, killed, connected, stdin, stdout, stderr, stdio }) => ({
    ...{ pid: typeof pid, exitCode, signalCode, killed, connected },
    stdio: stdio.map((stream, index) => stream && stream === [stdin, stdout, stderr][index]),
  })
  for (const [what, line] of Object.entries(endings)) {
    for (const stdio of ['pipe', 'ignore', ['ignore', 'pipe', 'ignore']]) {
      same(`${what}, stdio ${stdio}`, async (start) => {
        const child = start('sh', ['-c', line], { stdio })
        const seen = [state(child)]
        for (const event of ['spawn', 'exit', 'close'])
          child.on(event, () => seen.push([event, state(child)]))
        return [await record(child), seen]
      })
    }
  }

  // child_process emits (0, null), like a successful exit.
  test('a signal without a name, which is not a success', posixOnly(NO_SIGNALS, options), async () => {
    const child = spawnOwned('sh', ['-c', 'kill -40 $$'])
    const { log } = await record(child)
    assert.deepEqual(log, [['spawn'], ['exit', null, '40'], ['close', null, '40']])
    assert.equal((await child.wait()).reason, 'signal')
  })

  const late = {
    'in the same tick': () => {},
    'after a promise': () => Promise.resolve(),
    'after many promises': async () => {
      for (let i = 0; i < 50; i++) await null
    },
    'after the loop was blocked': () => execFileSync('true') && undefined,
  }
  for (const [when, pause] of Object.entries(late)) {
    test(`exit and close with a listener that is attached ${when}`, { timeout: 60_000 }, async () => {
      for (let round = 0; round < 100; round++) {
        const child = spawnOwned('true', { stdio: round % 2 ? 'ignore' : 'pipe' })
        await pause()
        const seen = []
        for (const event of ['exit', 'close']) child.on(event, (...args) => seen.push(event, ...args))
        await once(child, 'close')
        assert.deepEqual(seen, ['exit', 0, null, 'close', 0, null])
      }
    })
  }

  same('listeners, which run in the async context of the call', async (start) => {
    const context = new AsyncLocalStorage()
    const child = context.run('of the call', () => start('echo', ['x']))
    const seen = {}
    for (const event of ['spawn', 'exit', 'close']) child.on(event, () => (seen[event] = context.getStore()))
    child.stdout.on('data', () => (seen.data = context.getStore()))
    await once(child, 'close')
    return seen
  })

  same('a listener that throws: an uncaught exception and nothing else', async (start) => {
    const code = `process.on('uncaughtException', (e) => console.log(e.message))
      const child = ({ ...require('spawn-owned'), ...require('child_process') }).${start.name}('true')
      for (const event of ['spawn', 'exit', 'close']) child.on(event, () => { throw new Error(event) })`
    return execFileSync(process.execPath, ['-e', code], { cwd: script('.'), encoding: 'utf8' })
  })
})
