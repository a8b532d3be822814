// How arguments, environment and shell are prepared on Windows, compared with Node. Node reads
// process.platform at each call, so the comparison works on every system. windows.test.mjs tests
// what Windows then does.
import assert from 'node:assert/strict'
import child_process from 'node:child_process'
import { constants } from 'node:os'
import { describe, test } from 'node:test'
import { sources } from '../support/sources.mjs'

const skip = process.platform === 'win32' && 'this is Windows: windows.test.mjs tests it directly'

/** Our sources, loaded as on Windows. */
const ours = skip
  ? undefined
  : await onWindows(() => sources('run/spawn-options', 'util/signals', 'util/windows'))

async function onWindows(action) {
  const platform = Object.getOwnPropertyDescriptor(process, 'platform')
  Object.defineProperty(process, 'platform', { ...platform, value: 'win32' })
  try {
    return await action()
  } finally {
    Object.defineProperty(process, 'platform', platform)
  }
}

const facts = ({ file, args, envPairs, windowsHide, windowsVerbatimArguments }) => ({
  file,
  args,
  envPairs: envPairs.filter((pair) => !/^NODE_V8_COVERAGE=/.test(pair)),
  windowsHide,
  windowsVerbatimArguments,
})

/** What Node passes to the system. */
function theirs(...args) {
  const { prototype } = child_process.ChildProcess
  const { spawn } = prototype
  let seen
  prototype.spawn = (options) => {
    seen = facts(options)
    throw new Error('that is enough')
  }
  try {
    assert.throws(() => child_process.spawn(...args), /that is enough/)
  } finally {
    prototype.spawn = spawn
  }
  return seen
}

/** What spawnOwned passes to the system. */
function our(command, args, options) {
  const { argv, env, ...rest } = ours.readArguments(command, args, options, 0)
  // Each argument and each variable ends with a NUL.
  return facts({ ...rest, args: argv.split('\0').slice(0, -1), envPairs: env.split('\0').slice(0, -1) })
}

const given = { env: { A: '1' } }
const calls = {
  'a command': ['git', ['status'], given],
  'a hidden window and verbatim arguments': [
    'git',
    [],
    { ...given, windowsHide: true, windowsVerbatimArguments: true },
  ],
  'the usual shell': ['dir "C:\\Program Files"', [], { ...given, shell: true }],
  'the usual shell and arguments': ['echo', ['a b', 'c'], { ...given, shell: true }],
  'a shell with the argv0 of the caller': ['dir', [], { ...given, shell: true, argv0: 'other' }],
  'a shell without windowsVerbatimArguments': [
    'dir',
    { ...given, shell: true, windowsVerbatimArguments: false },
  ],
  ...Object.fromEntries(
    [
      'cmd',
      'CMD.EXE',
      'C:\\Windows\\cmd.exe',
      'C:/Windows/cmd.exe',
      'xcmd.exe',
      'cmd.com',
      'bash',
      'powershell.exe',
    ].map((shell) => [`the shell ${shell}`, ['echo "a"', { ...given, shell }]]),
  ),
  'another shell and verbatim arguments': [
    'dir',
    { ...given, shell: 'bash', windowsVerbatimArguments: true },
  ],
  'variables whose names differ in case': [
    'git',
    { env: { Path: '1', path: '2', PATH: '3', b: '4', B: '5', a: '6', ß: '7', SS: '8' } },
  ],
  'a variable that is undefined': ['git', { env: { a: '1', A: undefined, B: undefined, b: '2' } }],
  'variables that are inherited properties': [
    'git',
    { env: Object.assign(Object.create({ a: '1', C: '2' }), { A: '3', c: '4' }) },
  ],
  'no environment': ['git', { env: {} }],
}

describe('spawnOwned prepares the same call as child_process on Windows for', { skip }, () => {
  for (const [what, args] of Object.entries(calls)) {
    test(what, () => onWindows(() => assert.deepEqual(our(...args), theirs(...args))))
  }

  test('the shell that the environment names, or else cmd.exe', () =>
    onWindows(() => {
      const before = process.env.comspec
      for (const comspec of ['C:\\other\\shell.exe', 'D:\\cmd.exe', '']) {
        process.env.comspec = comspec
        assert.equal(our('dir', { ...given, shell: true }).file, comspec || 'cmd.exe')
        assert.deepEqual(our('dir', { ...given, shell: true }), theirs('dir', { ...given, shell: true }))
      }
      if (before === undefined) delete process.env.comspec
      else process.env.comspec = before
    }))

  test('an environment with a cookie, which it removes in any case of letters', () => {
    const env = { spawn_owned_run: 'x', Spawn_Owned_Run: 'y', SPAWN_OWNED_RUN: 'z', SPAWN_OWNED_RUNS: 'kept' }
    assert.deepEqual(our('git', [], { env }).envPairs, ['SPAWN_OWNED_RUNS=kept'])
    assert.deepEqual(our('git', [], { env: { spawn_owned_run: 'x' } }).envPairs, [])
  })

  test('signals: those that Windows does not have become SIGKILL, and 0 stays 0', () => {
    const { signals } = constants
    for (const name of ['SIGINT', 'SIGQUIT', 'SIGKILL', 'SIGTERM', 'SIGWINCH'])
      assert.equal(ours.delivered(signals[name]), signals[name])
    for (const name of ['SIGHUP', 'SIGILL', 'SIGABRT', 'SIGFPE', 'SIGSEGV'])
      assert.equal(ours.delivered(signals[name]), signals.SIGKILL)
    assert.equal(ours.delivered(0), 0)
    assert.equal(
      ours.readArguments('git', { killSignal: 'SIGHUP' }, undefined, 0).killSignal,
      signals.SIGKILL,
    )
  })
})
