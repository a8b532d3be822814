// What Node does differently on Windows before it asks the system, we do too. Node decides that when it is called, by
// process.platform, so both can be compared anywhere; what Windows then does with it is in windows.test.mjs.
import assert from 'node:assert/strict'
import child_process from 'node:child_process'
import { constants } from 'node:os'
import { describe, test } from 'node:test'
import { sources } from './support/sources.mjs'

const skip = process.platform === 'win32' && 'there is a real Windows here: see windows.test.mjs'

/** Our sources as they are on Windows. */
const ours = skip ? undefined : await onWindows(() => sources('options', 'signals', 'windows'))

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

/** What Node would start. */
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

/** What we would. */
function our(command, args, options) {
  const { argv, env, ...rest } = ours.readArguments(command, args, options, 0)
  return facts({ ...rest, args: argv, envPairs: env })
}

const given = { env: { A: '1' } }
const calls = {
  'a command': ['git', ['status'], given],
  'a window, and arguments as they are': [
    'git',
    [],
    { ...given, windowsHide: true, windowsVerbatimArguments: true },
  ],
  'the usual shell': ['dir "C:\\Program Files"', [], { ...given, shell: true }],
  'the usual shell and arguments': ['echo', ['a b', 'c'], { ...given, shell: true }],
  'its name is the caller’s': ['dir', [], { ...given, shell: true, argv0: 'other' }],
  'it is as it is even if that is not asked for': [
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
  'another shell and arguments as they are': [
    'dir',
    { ...given, shell: 'bash', windowsVerbatimArguments: true },
  ],
  'names that differ in case': [
    'git',
    { env: { Path: '1', path: '2', PATH: '3', b: '4', B: '5', a: '6', ß: '7', SS: '8' } },
  ],
  'one of them undefined': ['git', { env: { a: '1', A: undefined, B: undefined, b: '2' } }],
  'inherited ones': ['git', { env: Object.assign(Object.create({ a: '1', C: '2' }), { A: '3', c: '4' }) }],
  'no environment': ['git', { env: {} }],
}

describe('as in child_process on Windows:', { skip }, () => {
  for (const [what, args] of Object.entries(calls)) {
    test(what, () => onWindows(() => assert.deepEqual(our(...args), theirs(...args))))
  }

  test('the shell is the one that the environment names, or else cmd.exe', () =>
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

  test('the cookie is not taken from the caller, however it is written', () => {
    const env = { spawn_owned_run: 'x', Spawn_Owned_Run: 'y', SPAWN_OWNED_RUN: 'z', SPAWN_OWNED_RUNS: 'kept' }
    assert.deepEqual(our('git', [], { env }).envPairs, ['SPAWN_OWNED_RUNS=kept'])
    assert.deepEqual(our('git', [], { env: { spawn_owned_run: 'x' } }).envPairs, [])
  })

  test('a signal that cannot be imitated ends, except the one that never does', () => {
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
