// Reads and validates the arguments of spawnOwned: Node's options as Node does, and our own.

import { fileURLToPath } from 'node:url'
import type { SpawnOwnedOptions } from '../../index.js'
import type { LaunchOptions } from '../native/addon.js'
import { DROP_IN } from '../util/drop-in.js'
import { invalidType, invalidValue, outOfRange } from '../util/errors.js'
import { refuseMisspelled } from '../util/read-options.js'
import { isNode } from '../util/runtimes.js'
import { delivered, killSignalNumber } from '../util/signals.js'
import { freshId } from '../util/unique-id.js'
import {
  checkNoNul,
  checkRunId,
  checkString,
  duration,
  flag,
  optionalText,
  ownOptions,
  preview,
  readLabels,
} from '../util/validation.js'
import { isWindows, namesOnWindows, type ShellCommand, shellOnWindows } from '../util/windows.js'
import { readContainment } from './containment-options.js'
import { readMetadata } from './metadata.js'
import { OF_ANOTHER_TERMINAL, readTerminal, type TerminalSettings } from './pty-options.js'

/** The options of a run, complete: what the native side needs, and what only JavaScript needs. */
export interface RunSettings extends LaunchOptions {
  /** The arguments with `argv[0]`, as the caller passed them. */
  spawnargs: readonly unknown[]
  /** The labels as an object. `labels` is the same as JSON. */
  givenLabels: Readonly<Record<string, string>>
  killSignal: number
  /** The timeout is Node's. In a drop-in for child_process it ends with the root process. */
  endsTimeoutWithRoot: boolean
  /** A drop-in for child_process started the run: after the exit of the root, Node's rules hold. */
  isDropIn: boolean
  /** Terminate the earlier runs of the scope first. */
  replaceScope: boolean
  abort: AbortSignal | undefined
  serialization: 'json' | 'advanced'
  /** As the caller passed it. stdio.ts reads it. Unused for a run with a terminal. */
  stdio: unknown
}

/**
 * Reads the arguments of spawnOwned; `args` is optional. `graceMs` is the default of that option.
 */
export function readArguments(
  command: unknown,
  second: unknown,
  third: unknown,
  graceMs: number,
): RunSettings {
  checkString(command, 'file')
  if (command === '') throw invalidValue('file', command, 'cannot be empty')

  const args: readonly unknown[] = Array.isArray(second) ? [...second] : []
  let given = third
  if (second != null && !Array.isArray(second)) {
    if (typeof second !== 'object') throw invalidType('args', 'of type object', second)
    given = second
  }
  // As in Node, before the options are read. Objects are converted later, once.
  for (const [index, arg] of args.entries()) if (typeof arg === 'string') checkNoNul(arg, `args[${index}]`)
  if (given !== undefined && (given === null || typeof given !== 'object' || Array.isArray(given))) {
    throw invalidType('options', 'of type object', given)
  }
  const options = ownOptions<SpawnOwnedOptions>(given)
  // Node ignores unknown keys, so the unchanged callers of a drop-in may pass any.
  if (!(DROP_IN in options)) refuseMisspelled(options, 'spawnOwned')
  const { file, spawnargs, words, verbatim } = commandLine(command, args, options)
  const killSignal = delivered(killSignalNumber(options.killSignal))
  const terminal = readTerminal(options)
  return {
    file,
    spawnargs,
    argv: block(words),
    env: environment(options.env, terminal),
    cwd: directory(options.cwd),
    uid: optionalInt32(options.uid, 'options.uid'),
    gid: optionalInt32(options.gid, 'options.gid'),
    ...nodeSwitches(options),
    windowsVerbatimArguments: verbatim || options.windowsVerbatimArguments === true,
    ...ownership(options, file, words, graceMs),
    // Only ensure-service.ts starts a service. `spawn` sets its name.
    service: undefined,
    ...readContainment(options),
    ...deadline(options, killSignal),
    killSignal,
    stdio: options.stdio,
    terminal,
  }
}

/**
 * Returns file and arguments, with the shell if `options.shell` is set.
 *
 * `spawnargs` are as the caller passed them. `words` are the same as text, converted once: an object
 * can return another text next time.
 */
function commandLine(command: string, args: readonly unknown[], options: SpawnOwnedOptions) {
  const { shell, argv0 } = options
  if (shell != null && typeof shell !== 'boolean' && typeof shell !== 'string') {
    throw invalidType('options.shell', 'one of type boolean or string', shell)
  }
  if (argv0 != null) checkString(argv0, 'options.argv0')
  const texts = args.map((arg, index) => asText(arg, `args[${index}]`, Boolean(shell)))
  if (!shell) {
    const name = typeof argv0 === 'string' ? argv0 : command
    return { file: command, spawnargs: [name, ...args], words: [name, ...texts], verbatim: false }
  }
  if (args.length > 0) warnAboutShellArguments()
  if (typeof shell === 'string') checkString(shell, 'options.shell')
  const { file, args: rest, verbatim } = throughShell(shell, [command, ...texts].join(' '))
  const words = [typeof argv0 === 'string' ? argv0 : file, ...rest]
  return { file, spawnargs: words, words, verbatim }
}

/** Joins strings for the native side: each ends with a NUL. None contains one. */
function block(strings: readonly string[]): string {
  return strings.map((text) => `${text}\0`).join('')
}

/** Converts an argument as Node does. For a shell, null and undefined are the empty string. */
function asText(arg: unknown, name: string, forShell: boolean): string {
  if (forShell && arg == null) return ''
  const text = forShell ? `${arg}` : String(arg)
  checkNoNul(text, name)
  return text
}

function throughShell(shell: string | true, command: string): ShellCommand {
  if (isWindows) {
    return shellOnWindows(typeof shell === 'string' ? shell : process.env.comspec || 'cmd.exe', command)
  }
  return { file: typeof shell === 'string' ? shell : '/bin/sh', args: ['-c', command], verbatim: false }
}

let warned = false

/** Where versions of Node differ, this package follows the running one. */
const nodeVersion = Number.parseInt(process.versions.node, 10)

/** Emits the warning that Node emits since version 24. */
function warnAboutShellArguments(): void {
  if (warned || nodeVersion < 24) return
  warned = true
  process.emitWarning(
    'Passing args to a child process with shell option true can lead to security vulnerabilities, ' +
      'as the arguments are not escaped, only concatenated.',
    'DeprecationWarning',
    'DEP0190',
  )
}

/** The variable of the cookie. The native side sets it for the command. */
const COOKIE = 'SPAWN_OWNED_RUN'

/** Node's own `process.env`. A bot can replace it by a plain object. */
const nodeEnv = isNode ? process.env : undefined

/**
 * Returns the variables of the command, each as `KEY=value` with a NUL at the end.
 *
 * Without `given` they are those of the calling thread, as in Node: a worker has its own
 * `process.env`. The native side does not read them: another thread (a worker with `SHARE_ENV`) can
 * write to the environment, and only `process.env` holds the lock for that.
 */
function environment(given: NodeJS.ProcessEnv | undefined, terminal: TerminalSettings | undefined): string {
  const env = given || process.env
  const withoutTerminal = !given && terminal !== undefined
  let block = ''
  for (const key of variableNames(env)) {
    const name = isWindows ? key.toUpperCase() : key
    if (name === COOKIE || (withoutTerminal && OF_ANOTHER_TERMINAL.has(name))) continue
    const value = env[key]
    if (value === undefined) continue
    // Converted once: an object can return another text the next time.
    const text = `${value}`
    if (env !== nodeEnv) {
      checkNoNul(key, `options.env['${key}']`)
      checkNoNul(text, `options.env['${key}']`)
    }
    block += `${key}=${text}\0`
  }
  const coverage = given && process.env.NODE_V8_COVERAGE
  if (coverage && !Object.hasOwn(given, 'NODE_V8_COVERAGE')) block += `NODE_V8_COVERAGE=${coverage}\0`
  return block
}

function variableNames(env: NodeJS.ProcessEnv): string[] {
  let names: string[] = []
  // Three times faster than a loop: a loop checks each name again for being enumerable.
  if (env === nodeEnv) names = Reflect.ownKeys(env) as string[]
  // With inherited names, as in Node.
  else for (const name in env) names.push(name)
  return isWindows ? namesOnWindows(names) : names
}

export function directory(cwd: unknown): string | undefined {
  if (cwd == null) return undefined
  const path = cwd instanceof URL ? fileURLToPath(cwd) : Buffer.isBuffer(cwd) ? cwd.toString() : cwd
  checkString(path, 'options.cwd', 'of type string or an instance of Buffer or URL')
  return path === '' ? undefined : path
}

function nodeSwitches(options: SpawnOwnedOptions) {
  checkSwitch(options.detached, 'options.detached')
  checkSwitch(options.windowsHide, 'options.windowsHide')
  checkSwitch(options.windowsVerbatimArguments, 'options.windowsVerbatimArguments')
  const { signal: abort, serialization } = options
  if (abort !== undefined && (typeof abort !== 'object' || abort === null || !('aborted' in abort))) {
    throw invalidType('options.signal', 'an instance of AbortSignal', abort)
  }
  if (serialization !== undefined && serialization !== 'json' && serialization !== 'advanced') {
    throw invalidValue(
      'options.serialization',
      serialization,
      "must be one of: undefined, 'json', 'advanced'",
    )
  }
  return {
    abort,
    serialization: serialization ?? 'json',
    windowsHide: options.windowsHide === true,
  } as const
}

/** Checks a boolean option of Node. Null means undefined, as in Node. */
function checkSwitch(value: unknown, name: string): void {
  if (value != null && typeof value !== 'boolean') throw invalidType(name, 'of type boolean', value)
}

function ownership(options: SpawnOwnedOptions, file: string, words: readonly string[], graceMs: number) {
  const runId = optionalText(options, 'runId')
  const scopeKey = optionalText(options, 'scopeKey')
  const labels = readLabels(options.labels, 'options.labels')
  return {
    runId: runId === undefined ? freshId() : checkRunId(runId, 'options.runId'),
    givenId: runId !== undefined,
    sessionId: optionalText(options, 'sessionId'),
    scopeKey,
    replaceScope: replacesScope(options.replaceExistingScope, scopeKey),
    backendId: optionalText(options, 'backendId'),
    givenLabels: labels,
    labels: labelsAsJson(labels),
    metadata: readMetadata(options.metadata, 'options.metadata'),
    preview: preview(optionalText(options, 'commandPreview') ?? [file, ...words.slice(1)].join(' ')),
    graceMs: duration(options.graceMs, 'options.graceMs') ?? graceMs,
    onOwnerExit: policy(options, 'onOwnerExit'),
    onLeaderExit: policy(options, 'onLeaderExit'),
    isDropIn: DROP_IN in options,
  }
}

/** Returns the labels as JSON, or undefined if there are none. */
export function labelsAsJson(labels: Readonly<Record<string, string>>): string | undefined {
  for (const _ in labels) return JSON.stringify(labels)
  return undefined
}

function replacesScope(given: unknown, scopeKey: string | undefined): boolean {
  const replaces = flag(given, 'options.replaceExistingScope')
  if (replaces && scopeKey === undefined)
    throw invalidValue('options.replaceExistingScope', given, 'needs options.scopeKey: the scope to replace')
  return replaces
}

/**
 * Returns the shorter of Node's `timeout` (first signal `killSignal`) and `timeoutMs` (SIGTERM).
 */
function deadline(options: SpawnOwnedOptions, killSignal: number) {
  const nodes = checkTimeout(options.timeout) || 0
  const ours = wholeMs(options.timeoutMs, 'options.timeoutMs')
  const idleTimeoutMs = wholeMs(options.noOutputTimeoutMs, 'options.noOutputTimeoutMs')
  return nodes > 0 && (ours === 0 || nodes < ours)
    ? { idleTimeoutMs, timeoutMs: nodes, timeoutSignal: killSignal, endsTimeoutWithRoot: ours === 0 }
    : {
        idleTimeoutMs,
        timeoutMs: ours,
        timeoutSignal: killSignalNumber(undefined),
        endsTimeoutWithRoot: false,
      }
}

function checkTimeout(timeout: number | undefined): number | undefined {
  if (timeout == null || (Number.isInteger(timeout) && timeout >= 0)) return timeout
  if (nodeVersion < 26) throw outOfRange('timeout', 'an unsigned integer', timeout)
  if (typeof timeout !== 'number') throw invalidType('timeout', 'of type number', timeout)
  const range = Number.isInteger(timeout) ? `>= 0 && <= ${Number.MAX_SAFE_INTEGER}` : 'an integer'
  throw outOfRange('timeout', range, timeout)
}

/** Returns whole milliseconds. It rounds up, because 0 means "none". */
function wholeMs(value: unknown, name: string): number {
  return Math.ceil(duration(value, name) ?? 0)
}

function policy(options: SpawnOwnedOptions, name: 'onOwnerExit' | 'onLeaderExit'): 'kill' | 'keep' {
  const value = options[name] ?? 'kill'
  if (value !== 'kill' && value !== 'keep')
    throw invalidValue(`options.${name}`, value, "must be 'kill' or 'keep'")
  return value
}

function optionalInt32(value: unknown, name: string): number | undefined {
  if (value == null) return undefined
  if (typeof value === 'number' && value === (value | 0)) return value
  if (nodeVersion < 26) throw invalidType(name, 'int32', value)
  if (typeof value !== 'number') throw invalidType(name, 'of type number', value)
  const range = Number.isInteger(value) ? '>= -2147483648 && <= 2147483647' : 'an integer'
  throw outOfRange(name, range, value)
}
