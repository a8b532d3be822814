// Errors of a call: spawnOwned reports them like child_process, with the same error, at the same
// time, in the same way.
import { constants, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { constants as os, tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { facts, run, same, spawnOwned } from '../fixtures/side-by-side.mjs'
import { after, assert, describe, test } from '../support/prelude.mjs'
import { isWindows, notUnderWine, WINE_TAKES_ANY_LENGTH } from '../support/system.mjs'

const dir = mkdtempSync(join(tmpdir(), 'errors-'))
after(() => rmSync(dir, { recursive: true, maxRetries: 10 }))
const at = (name) => join(dir, name)
writeFileSync(at('not-executable'), '#!/bin/sh\n')
writeFileSync(at('no-interpreter'), '#!/nonexistent/interpreter\n', { mode: 0o755 })
writeFileSync(at('not-a-program'), Buffer.from('\x7fELF nonsense', 'latin1'), { mode: 0o755 })

const option = (name, ...values) => values.map((value) => ['true', [], { [name]: value }])
const env = (...values) => option('env', ...values)
const notAString = [null, 0, true, {}, [], Symbol('s')]
const notAnObject = [null, 0, true, 'text', [], () => {}]

/** Each row is one call's arguments. */
const wrong = {
  'the command': [[], [undefined], [''], ['a\0b'], [() => {}], ...notAString.map((value) => [value])],
  'the arguments': [0, 1, true, 'text', Symbol('s'), () => {}].map((value) => ['true', value]),
  'one argument': [
    ['true', ['a\0b']],
    ['true', ['ok', '\0']],
    ['true', [], { argv0: 'a\0' }],
  ],
  'the options': [...notAnObject.map((value) => ['true', [], value]), ['true', null, 'text']],
  argv0: option('argv0', 0, {}, true, Symbol('s'), []),
  cwd: option(
    'cwd',
    0,
    {},
    true,
    [],
    'a\0',
    new URL('http://host/'),
    new URL('file:///a%2Fb'),
    'nonexistent',
  ),
  'a cwd that is a file': option('cwd', at('not-executable'), join(at('not-executable'), 'below')),
  detached: option('detached', 0, 1, 'yes', {}),
  env: env('text', 0, 1, true, { 'a\0': '1' }, { a: '\0' }, { a: Symbol('s') }, { a: Object.create(null) }),
  gid: option('gid', '0', {}, true, 1.5, NaN, Infinity, 2 ** 31, -(2 ** 31) - 1),
  killSignal: option('killSignal', 'SIGNONE', 999, {}, true, [], '', Symbol('s'), 0, null, 'sigterm', 1.5),
  serialization: option('serialization', 'text', 0, null, {}, ''),
  shell: option('shell', 0, 1, {}, [], Symbol('s'), 'a\0', '/nonexistent/shell', ''),
  signal: option('signal', 0, 'SIGTERM', true, null, {}, []),
  stdio: option('stdio', 'text', '', 0, true, {}, Symbol('s'), 'ipc', null, false),
  'one of stdio': [
    ...['text', {}, true, Symbol('s'), Buffer.from('x'), new Uint8Array(1), { fd: '1' }, new Map()],
    // -1 has its own test below: Node 24 and 26 refuse it too, but write to freed memory if the
    // next spawn follows at once.
    ...['', false, () => {}, { fd: -2 }, { fd: -3 }, { fd: -9 }],
  ].map((value) => ['true', [], { stdio: ['ignore', value] }]),
  'two channels': [['true', [], { stdio: ['ipc', 'ipc'] }]],
  'a descriptor that is not open': [
    ['true', [], { stdio: ['ignore', 9999] }],
    ['true', [], { stdio: ['ignore', 'ignore', 'ignore', 9999] }],
    ['true', [], { stdio: ['ignore', { fd: 9999 }] }],
  ],
  timeout: option('timeout', -1, 1.5, NaN, Infinity, '1', {}, true, null),
  uid: option('uid', '0', {}, true, 1.5, NaN, Infinity, 2 ** 31, -(2 ** 31) - 1),
  windowsHide: option('windowsHide', 0, 'yes', {}),
  windowsVerbatimArguments: option('windowsVerbatimArguments', 0, 'yes', {}),
}

describe('spawnOwned reports, like child_process, an invalid value for', () => {
  for (const [what, calls] of Object.entries(wrong)) {
    // Format the name before the call, because child_process changes the given stdio array.
    const named = calls.map((args) => [inspect(args, { depth: 4, breakLength: Infinity }), args])
    same(what, async (start) => {
      const seen = {}
      for (const [name, args] of named) seen[name] = await run(start, ...args)
      return seen
    })
  }
})

describe('spawnOwned reports, like child_process, that it cannot start', () => {
  const commands = {
    'a command that does not exist': ['nonexistent-command', ['a', 'b']],
    'a path that does not exist': ['/nonexistent/command'],
    'a name that is too long': ['x'.repeat(300)],
    'a directory': [dir],
    'a path through a file': [join(at('not-executable'), 'x')],
    'a file without permission': [at('not-executable')],
    'a script without its interpreter': [at('no-interpreter')],
    'a file that is not a program': [at('not-a-program')],
    'a path through /proc/self/fd': ['/proc/self/fd/../fd/nonexistent'],
    'a missing command without streams': ['nonexistent-command', { stdio: 'ignore' }],
    'a missing command with a channel': ['nonexistent-command', { stdio: ['pipe', 'pipe', 'pipe', 'ipc'] }],
    'a missing command with an aborted signal': ['nonexistent-command', { signal: AbortSignal.abort() }],
    'a missing command with a timeout': ['nonexistent-command', { timeout: 100 }],
    'a command in a missing directory': ['true', { cwd: '/nonexistent' }],
    'a command through a missing shell': ['true', { shell: '/nonexistent/shell' }],
  }
  for (const [what, args] of Object.entries(commands)) {
    same(what, async (start) => {
      const seen = [await run(start, ...args)]
      // Compare also the process object right after the call.
      try {
        const child = start(...args)
        const { connected, exitCode, signalCode, killed, spawnfile, spawnargs } = child
        const pid = typeof child.pid
        const streams = child.stdio?.map((stream) => stream && [stream.readable, stream.writable])
        seen.push({ pid, connected, exitCode, signalCode, killed, spawnfile, spawnargs, streams })
        child.once('error', () => seen.push({ kill: child.kill(), pid: child.pid, code: child.exitCode }))
        await new Promise((resolve) => child.on('close', resolve))
      } catch (error) {
        seen.push(facts(error))
      }
      return seen
    })
  }
})

describe('spawnOwned reports, like child_process, the excessive length of', () => {
  const words = (count, word) => Array.from({ length: count }, () => word)
  const calls = {
    'one argument': ['true', ['x'.repeat(131_072)]],
    'one variable': ['true', { env: { A: 'x'.repeat(131_072) } }],
    'all arguments': ['true', words(100, 'x'.repeat(100_000))],
    'three million arguments': ['true', words(3_000_000, 'xxxxxxx')],
    'the environment': ['true', { env: Object.fromEntries(words(90, 'x'.repeat(120_000)).entries()) }],
  }
  for (const [what, args] of Object.entries(calls)) {
    same(
      what,
      async (start) => {
        const { thrown } = await run(start, ...args)
        assert.equal(thrown?.code, isWindows ? 'ENAMETOOLONG' : 'E2BIG')
        return thrown
      },
      notUnderWine(WINE_TAKES_ANY_LENGTH),
    )
  }
})

describe('the error for an own option of spawnOwned names the option and the fix:', () => {
  const type = 'ERR_INVALID_ARG_TYPE'
  const value = 'ERR_INVALID_ARG_VALUE'
  const range = 'ERR_OUT_OF_RANGE'
  const texts = ['sessionId', 'scopeKey', 'backendId', 'commandPreview'].flatMap((name) => [
    [name, 7, type, /string/],
    [name, null, type, /string/],
    [name, 'a\0', value, /null bytes/],
  ])
  const times = ['graceMs', 'timeoutMs'].flatMap((name) => [
    [name, '5', type, /number/],
    [name, null, type, /number/],
    [name, -1, range, />= 0/],
    [name, NaN, range, />= 0/],
    [name, Infinity, range, />= 0/],
  ])
  const policies = ['onOwnerExit', 'onLeaderExit'].flatMap((name) => [
    [name, 'stay', value, /'kill' or 'keep'/],
    [name, true, value, /'kill' or 'keep'/],
  ])
  const rows = [
    ['runId', 7, type, /string/],
    ['runId', '', value, /1 to 128/],
    ['runId', 'x'.repeat(129), value, /1 to 128/],
    ...['.a', 'a b', 'a/b', 'ä', 'a=b', 'a\n'].map((id) => ['runId', id, value, /letters, digits/]),
    ['labels', 'agent', type, /object/],
    ['labels', null, type, /object/],
    ['labels', ['agent'], type, /object/],
    ['labels', { agent: 7 }, type, /string/],
    ...texts,
    ...times,
    ...policies,
    ['replaceExistingScope', true, value, /needs options\.scopeKey/],
    ['replaceExistingScope', 'yes', type, /boolean/],
    ...[7, 'yes', null, [80, 24]].map((pty) => ['pty', pty, type, /boolean or object/]),
  ]
  for (const [index, [name, given, code, fix]] of rows.entries()) {
    test(`${name}: ${JSON.stringify(given) ?? given}`.slice(0, 60), () => {
      const marker = at(`started-${index}`)
      assert.throws(
        () => spawnOwned('touch', [marker], { [name]: given }),
        (error) => {
          assert.equal(error.code, code, error.stack)
          assert.match(error.message, new RegExp(`options\\.${name}\\b`))
          assert.match(error.message, fix)
          return true
        },
      )
      assert.throws(
        () => openSync(marker, constants.O_RDONLY),
        { code: 'ENOENT' },
        'the command must not start',
      )
    })
  }

  test('an option that is undefined counts as not given', async () => {
    const names = [...new Set(rows.map(([name]) => name))]
    const none = Object.fromEntries(names.map((name) => [name, undefined]))
    assert.equal((await spawnOwned('true', none).wait()).reason, 'exit')
  })

  test('a run id in use is refused, and is free again after the run', async () => {
    const first = spawnOwned('cat', { runId: 'the-one' })
    assert.throws(() => spawnOwned('true', { runId: 'the-one' }), {
      code: 'ERR_OWNED_DUPLICATE_RUN',
      message: /runId "the-one".*Cancel it/,
    })
    await first.cancel()
    assert.equal((await spawnOwned('true', { runId: 'the-one' }).wait()).runId, 'the-one')
  })
})

test('spawnOwned refuses a negative descriptor', {
  skip: isWindows && 'on Windows -1 means no descriptor',
}, () => {
  assert.throws(() => spawnOwned('true', { stdio: ['ignore', { fd: -1 }] }), {
    code: 'EINVAL',
    errno: -os.errno.EINVAL,
    message: 'spawn EINVAL',
    syscall: 'spawn',
  })
})

test('an error prints like an error of Node', () => {
  assert.throws(
    () => spawnOwned(7),
    /^TypeError \[ERR_INVALID_ARG_TYPE\]: The "file" argument must be of type string/,
  )
})
