// Reads and validates the options of ensureService. Pure.

import type { ServiceOptions, SpawnOwnedOptions } from '../../index.js'
import { directory, readArguments } from '../run/spawn-options.js'
import { invalidType, invalidValue, outOfRange } from '../util/errors.js'
import { LIMITS, SERVICE, SERVICE_RUN } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import {
  checkServiceName,
  checkString,
  duration,
  optionalText,
  reading,
  readLabels,
} from '../util/validation.js'

/** The options of a service, complete. */
export interface ServiceSettings {
  name: string
  scopeKey: string
  command: string
  args: readonly string[]
  /** The options for spawnOwned. */
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

/**
 * Reads the options of ensureService.
 *
 * Checks all options, even if the service is up: a mistake must not show only when the service is
 * down. Reads and copies every value once, because an instance can be started later, and again.
 */
export function readServiceOptions(options: unknown, graceMs: number): ServiceSettings {
  const given = readOptions(options ?? null, SERVICE, { of: 'ensureService' })
  const { command, port, host = '127.0.0.1', ready, signal } = given
  const name = serviceName(given.name, 'options.name')
  checkString(command, 'options.command')
  if (command === '') throw invalidValue('options.command', command, 'cannot be empty')
  const args = readArgs(given.args)
  checkString(host, 'options.host')
  if (host === '') throw invalidValue('options.host', host, 'must be an address or undefined')
  const settings = {
    name,
    scopeKey: scopeOf(name),
    command,
    args,
    options: shared(given),
    ...readiness(port, ready),
    host,
    readyTimeoutMs: positive(given.readyTimeoutMs, 'options.readyTimeoutMs') ?? 10_000,
    attempts: count(given.attempts) ?? 3,
    backoffMs: duration(given.backoffMs, 'options.backoffMs') ?? 250,
    logPath: optionalText(given, 'logPath'),
    signal,
  }
  readArguments(command, args, { ...settings.options, signal }, graceMs)
  return settings
}

function readArgs(given: unknown): readonly string[] {
  if (given === undefined) return []
  return reading('options.args', () => {
    if (!Array.isArray(given)) throw invalidType('options.args', 'an Array of strings', given)
    const args: unknown[] = [...given]
    for (const [index, arg] of args.entries()) checkString(arg, `options.args[${index}]`)
    return args as string[]
  })
}

/** Returns the scope of a service. A scope has at most one instance at a time. */
export const scopeOf = (name: string) => `service:${name}`

export function serviceName(name: unknown, what: string): string {
  checkString(name, what)
  return checkServiceName(name, what)
}

/** Returns the options for spawnOwned, copied so that every start can read them again. */
function shared(given: Readonly<Partial<ServiceOptions>>): SpawnOwnedOptions {
  const copied = Object.entries(given).filter(([name]) => SERVICE_RUN.has(name))
  const options: SpawnOwnedOptions = Object.fromEntries(copied)
  const { cwd, labels, limits, env } = given
  if (cwd !== undefined) options.cwd = reading('options.cwd', () => directory(cwd))
  if (labels !== undefined) options.labels = readLabels(labels, 'options.labels')
  if (limits !== undefined)
    options.limits = readOptions(limits, LIMITS, { of: 'ensureService', name: 'options.limits' })
  if (env) options.env = reading('options.env', () => copyOfEnvironment(env))
  return options
}

/** Copies an environment, with its inherited properties, as Node reads it. */
function copyOfEnvironment(env: unknown): NodeJS.ProcessEnv {
  const copy: NodeJS.ProcessEnv = { __proto__: null } as unknown as NodeJS.ProcessEnv
  for (const name in env as NodeJS.ProcessEnv) {
    const value: unknown = (env as NodeJS.ProcessEnv)[name]
    if (value !== undefined) copy[name] = `${value}`
  }
  return copy
}

/** Reads the readiness checks. One is required: a live process need not be ready. */
function readiness(port: unknown, ready: unknown): Pick<ServiceSettings, 'port' | 'ready'> {
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
      'or options.ready is required, to detect when the service is up. `ready: () => true` skips the check',
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
