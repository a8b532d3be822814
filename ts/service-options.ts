// What ensureService can be told. Pure.

import type { ServiceOptions, SpawnOwnedOptions } from '../index.js'
import { checkObject, checkRunId, checkString, duration, optionalText } from './checks.js'
import { invalidType, invalidValue, outOfRange } from './errors.js'
import { readArguments } from './options.js'

/** Those of the service itself. */
const OWN = [
  'name',
  'command',
  'args',
  'port',
  'host',
  'ready',
  'readyTimeoutMs',
  'attempts',
  'backoffMs',
  'logPath',
  'signal',
] as const

/** Those that spawnOwned has as well. The others would contradict what a service is. */
const SHARED = [
  'cwd',
  'env',
  'shell',
  'argv0',
  'uid',
  'gid',
  'windowsHide',
  'windowsVerbatimArguments',
  'graceMs',
  'sessionId',
  'backendId',
  'labels',
  'commandPreview',
  'containment',
  'limits',
] as const

export interface ServiceWish {
  name: string
  scopeKey: string
  command: string
  args: readonly string[]
  /** For spawnOwned. */
  options: SpawnOwnedOptions
  port: number | undefined
  host: string
  ready: ServiceOptions['ready']
  readyTimeoutMs: number
  attempts: number
  backoffMs: number
  logPath: string | undefined
  signal: AbortSignal | undefined
}

/** Everything is checked, also what is not needed if the service is up: a mistake shall not wait for the day on which it is not. */
export function readServiceOptions(given: unknown, graceMs: number): ServiceWish {
  checkObject(given, 'options')
  refuseUnknown(given)
  const { command, args = [], port, host = '127.0.0.1', ready, signal } = given as ServiceOptions
  const name = serviceName((given as ServiceOptions).name, 'options.name')
  checkString(command, 'options.command')
  if (command === '') throw invalidValue('options.command', command, 'cannot be empty')
  if (!Array.isArray(args)) throw invalidType('options.args', 'an Array of strings', args)
  args.forEach((arg, index) => {
    checkString(arg, `options.args[${index}]`)
  })
  checkString(host, 'options.host')
  if (host === '') throw invalidValue('options.host', host, 'must be an address, or be left out')
  const wish = {
    name,
    scopeKey: scopeOf(name),
    command,
    args,
    options: shared(given),
    ...readiness(port, ready),
    host,
    readyTimeoutMs: positive((given as ServiceOptions).readyTimeoutMs, 'options.readyTimeoutMs') ?? 10_000,
    attempts: count((given as ServiceOptions).attempts) ?? 3,
    backoffMs: duration((given as ServiceOptions).backoffMs, 'options.backoffMs') ?? 250,
    logPath: optionalText(given, 'logPath'),
    signal,
  }
  readArguments(command, args, { ...wish.options, signal }, graceMs)
  return wish
}

/** The scope in which there is one at a time. */
export const scopeOf = (name: string) => `service:${name}`

export function serviceName(name: unknown, what: string): string {
  checkString(name, what)
  return checkRunId(name, what)
}

function refuseUnknown(given: object): void {
  const known: readonly string[] = [...OWN, ...SHARED]
  for (const [key, value] of Object.entries(given)) {
    if (value !== undefined && !known.includes(key))
      throw invalidValue(`options.${key}`, value, `is no option of a service; there are ${known.join(', ')}`)
  }
}

function shared(given: object): SpawnOwnedOptions {
  const options = given as Record<string, unknown>
  const names = SHARED.filter((name) => options[name] !== undefined)
  return Object.fromEntries(names.map((name) => [name, options[name]]))
}

/** That a process is alive does not say that it does its work. */
function readiness(port: unknown, ready: unknown): Pick<ServiceWish, 'port' | 'ready'> {
  if (port !== undefined) {
    if (typeof port !== 'number') throw invalidType('options.port', 'of type number', port)
    if (!Number.isInteger(port) || port < 1 || port > 65535)
      throw outOfRange('options.port', 'an integer >= 1 && <= 65535', port)
  }
  if (ready !== undefined && typeof ready !== 'function')
    throw invalidType('options.ready', 'of type function', ready)
  if (port === undefined && ready === undefined)
    throw invalidValue(
      'options.port',
      port,
      'or options.ready must be given, to tell when the service is up; `ready: () => true` takes it at its word',
    )
  return { port, ready: ready as ServiceOptions['ready'] }
}

function positive(value: unknown, name: string): number | undefined {
  const ms = duration(value, name)
  if (ms === 0) throw outOfRange(name, '> 0', value)
  return ms
}

function count(value: unknown): number | undefined {
  if (value === undefined) return undefined
  if (typeof value !== 'number') throw invalidType('options.attempts', 'of type number', value)
  if (!Number.isInteger(value) || value < 1) throw outOfRange('options.attempts', 'an integer >= 1', value)
  return value
}
