// The arguments of spawnOwned: Node's own, checked and completed as Node does, and ours.

import { fileURLToPath } from 'node:url'
import type { SpawnOwnedOptions } from '../index.js'
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
} from './checks.js'
import { invalidType, invalidValue, outOfRange } from './errors.js'
import { freshId } from './ids.js'
import { type Containment, readContainment } from './limits.js'
import { OF_ANOTHER_TERMINAL, readTerminal, type TerminalSettings } from './pty.js'
import { isMainThread, isNode } from './runtimes.js'
import { delivered, killSignalNumber } from './signals.js'
import { isWindows, namesOnWindows, type ShellCommand, shellOnWindows } from './windows.js'

/** Everything about a run that does not concern its descriptors. */
export interface RunSettings extends Containment {
  file: string
  /** With `argv[0]`; as given, so not necessarily strings. */
  argv: readonly unknown[]
  /** `KEY=value`; undefined: the process's own environment. */
  env: string[] | undefined
  cwd: string | undefined
  uid: number | undefined
  gid: number | undefined
  windowsHide: boolean
  windowsVerbatimArguments: boolean
  runId: string
  /** The caller has chosen it. */
  givenId: boolean
  sessionId: string | undefined
  scopeKey: string | undefined
  /** The name of the service that it is; not the caller's to say, see service.ts. */
  service?: string | undefined
  backendId: string | undefined
  labels: Readonly<Record<string, string>>
  preview: string
  graceMs: number
  timeoutMs: number
  timeoutSignal: number
  /** How long it may be silent; 0: as long as it likes. */
  silenceMs: number
  killSignal: number
  keepOnOwnerExit: boolean
  keepOnLeaderExit: boolean
  /** End what is in its scope first. */
  replaceScope: boolean
  abort: AbortSignal | undefined
  serialization: 'json' | 'advanced'
  stdio: unknown
  /** The terminal it is to have instead of what `stdio` says. */
  terminal: TerminalSettings | undefined
}

/** The second argument may be left out. `graceMs` is what a run has that gives none. */
export function readArguments(
  command: unknown,
  second: unknown,
  third: unknown,
  graceMs: number,
): RunSettings {
  checkString(command, 'file')
  if (command === '') throw invalidValue('file', command, 'cannot be empty')

  const args: readonly unknown[] = Array.isArray(second) ? second : []
  let given = third
  if (second != null && !Array.isArray(second)) {
    if (typeof second !== 'object') throw invalidType('args', 'of type object', second)
    given = second
  }
  args.forEach((arg, index) => {
    checkNoNul(String(arg), `args[${index}]`)
  })
  if (given !== undefined && (given === null || typeof given !== 'object' || Array.isArray(given))) {
    throw invalidType('options', 'of type object', given)
  }
  const options = ownOptions<SpawnOwnedOptions>(given)
  const { file, argv, verbatim } = commandLine(command, args, options)
  const killSignal = delivered(killSignalNumber(options.killSignal))
  const terminal = readTerminal(options)
  return {
    file,
    argv,
    env: usesOwnEnvironment(options) ? undefined : environment(options.env, terminal),
    cwd: directory(options.cwd),
    uid: optionalInt32(options.uid, 'options.uid'),
    gid: optionalInt32(options.gid, 'options.gid'),
    ...nodeSwitches(options),
    windowsVerbatimArguments: verbatim || options.windowsVerbatimArguments === true,
    ...ownership(options, file, argv, graceMs),
    ...readContainment(options),
    ...deadline(options, killSignal),
    killSignal,
    stdio: options.stdio,
    terminal,
  }
}

/** File and arguments, through the shell if one is asked for. */
function commandLine(command: string, args: readonly unknown[], options: SpawnOwnedOptions) {
  const { shell, argv0 } = options
  if (shell != null && typeof shell !== 'boolean' && typeof shell !== 'string') {
    throw invalidType('options.shell', 'one of type boolean or string', shell)
  }
  if (argv0 != null) checkString(argv0, 'options.argv0')
  let file = command
  let rest = args
  let verbatim = false
  if (shell) {
    if (args.length > 0) warnAboutShellArguments()
    if (typeof shell === 'string') checkString(shell, 'options.shell')
    ;({ file, args: rest, verbatim } = throughShell(shell, [command, ...args].join(' ')))
  }
  return { file, argv: [typeof argv0 === 'string' ? argv0 : file, ...rest], verbatim }
}

function throughShell(shell: string | true, command: string): ShellCommand {
  if (isWindows) {
    return shellOnWindows(typeof shell === 'string' ? shell : process.env.comspec || 'cmd.exe', command)
  }
  return { file: typeof shell === 'string' ? shell : '/bin/sh', args: ['-c', command], verbatim: false }
}

let warned = false

/** Where versions of Node differ we do as the one we run on. */
const nodeVersion = Number.parseInt(process.versions.node, 10)

/** As Node does since version 24. */
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

/** The name of the cookie; the native side sets it, from the bot's own. */
const COOKIE = 'SPAWN_OWNED_RUN'

/** On Node's main thread, as long as nobody has replaced it, `process.env` is the process's environment and nothing else. */
const realEnv = isNode ? process.env : undefined

/** Then the native side reads it, forty times faster than one can through `process.env`. */
function usesOwnEnvironment(options: SpawnOwnedOptions): boolean {
  return !options.env && process.env === realEnv && isMainThread()
}

export function environment(given: NodeJS.ProcessEnv | undefined, terminal?: TerminalSettings): string[] {
  const env = given || process.env
  const pairs: string[] = []
  const keys: string[] = []
  // Inherited keys are included on purpose, as in Node.
  for (const key in env) if (given || !terminal || !OF_ANOTHER_TERMINAL.has(key)) keys.push(key)
  for (const key of isWindows ? namesOnWindows(keys) : keys) {
    const value = env[key]
    if (value === undefined || (isWindows ? key.toUpperCase() : key) === COOKIE) continue
    checkNoNul(key, `options.env['${key}']`)
    checkNoNul(String(value), `options.env['${key}']`)
    pairs.push(`${key}=${value}`)
  }
  const coverage = process.env.NODE_V8_COVERAGE
  if (coverage && given && !Object.hasOwn(given, 'NODE_V8_COVERAGE'))
    pairs.push(`NODE_V8_COVERAGE=${coverage}`)
  return pairs
}

function directory(cwd: unknown): string | undefined {
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

/** Here null is as good as undefined, as in Node. */
function checkSwitch(value: unknown, name: string): void {
  if (value != null && typeof value !== 'boolean') throw invalidType(name, 'of type boolean', value)
}

function ownership(options: SpawnOwnedOptions, file: string, argv: readonly unknown[], graceMs: number) {
  const runId = optionalText(options, 'runId')
  const scopeKey = optionalText(options, 'scopeKey')
  return {
    runId: runId === undefined ? freshId() : checkRunId(runId, 'options.runId'),
    givenId: runId !== undefined,
    sessionId: optionalText(options, 'sessionId'),
    scopeKey,
    replaceScope: replacesScope(options.replaceExistingScope, scopeKey),
    backendId: optionalText(options, 'backendId'),
    labels: readLabels(options.labels, 'options.labels'),
    preview: preview(optionalText(options, 'commandPreview') ?? [file, ...argv.slice(1)].join(' ')),
    graceMs: duration(options.graceMs, 'options.graceMs') ?? graceMs,
    keepOnOwnerExit: policy(options, 'onOwnerExit') === 'keep',
    keepOnLeaderExit: policy(options, 'onLeaderExit') === 'keep',
  }
}

function replacesScope(given: unknown, scopeKey: string | undefined): boolean {
  const replaces = flag(given, 'options.replaceExistingScope')
  if (replaces && scopeKey === undefined)
    throw invalidValue('options.replaceExistingScope', given, 'needs options.scopeKey, the scope to replace')
  return replaces
}

/** The sooner of Node's `timeout`, which starts with `killSignal`, and ours, which starts with SIGTERM. */
function deadline(options: SpawnOwnedOptions, killSignal: number) {
  const nodes = checkTimeout(options.timeout) || 0
  const ours = wholeMs(options.timeoutMs, 'options.timeoutMs')
  const silenceMs = wholeMs(options.noOutputTimeoutMs, 'options.noOutputTimeoutMs')
  return nodes > 0 && (ours === 0 || nodes < ours)
    ? { silenceMs, timeoutMs: nodes, timeoutSignal: killSignal }
    : { silenceMs, timeoutMs: ours, timeoutSignal: killSignalNumber(undefined) }
}

function checkTimeout(timeout: number | undefined): number | undefined {
  if (timeout == null || (Number.isInteger(timeout) && timeout >= 0)) return timeout
  if (nodeVersion < 26) throw outOfRange('timeout', 'an unsigned integer', timeout)
  if (typeof timeout !== 'number') throw invalidType('timeout', 'of type number', timeout)
  const range = Number.isInteger(timeout) ? `>= 0 && <= ${Number.MAX_SAFE_INTEGER}` : 'an integer'
  throw outOfRange('timeout', range, timeout)
}

/** A fraction of a millisecond is not "off". */
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
