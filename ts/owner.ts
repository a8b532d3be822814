// Who answers for runs: what all parts of a supervisor share.

import type { EventEmitter } from 'node:events'
import { dirname, join, resolve } from 'node:path'
import type { LeaseEvent, ReapDecision, RegistryEvent, SupervisorOptions } from '../index.js'
import { checkOptions, checkString, duration } from './checks.js'
import { codedError, invalidValue, outOfRange } from './errors.js'
import { Announcer } from './events.js'
import { freshId } from './ids.js'
import { openRegistry } from './native.js'
import { flushAtExit, Registry } from './registry.js'
import { RunTable } from './runs.js'
import { type Trouble, warnOf } from './trouble.js'

const DEFAULT_GRACE_MS = 5000
const DEFAULT_LEASE_MS = 30_000
const MIN_LEASE_MS = 1000
const MAX_LEASE_MS = 2 ** 31 - 1
const DEFAULT_PATH = 'data/process-registry.json'
const DEFAULT_LOG = 'orphan-events.log'

export class Owner {
  readonly registryPath: string
  readonly graceMs: number
  readonly runs = new RunTable()
  #leaseMs: number
  #eventLogPath: string | undefined
  #instanceId: string | undefined
  #registry: Registry | undefined
  #written = false
  readonly events: Announcer

  constructor(options: SupervisorOptions | undefined, emitter: EventEmitter) {
    checkOptions(options)
    this.registryPath = pathOf(options?.registryPath)
    this.graceMs = duration(options?.graceMs, 'options.graceMs') ?? DEFAULT_GRACE_MS
    this.#leaseMs = lease(options?.leaseMs)
    this.#eventLogPath = logPathOf(options?.eventLogPath, this.registryPath)
    this.events = new Announcer(emitter)
  }

  get instanceId(): string {
    this.#instanceId ??= freshId()
    return this.#instanceId
  }

  /** To be read. */
  get registry(): Registry {
    this.#registry ??= new Registry(
      openRegistry(this.registryPath, this.instanceId, this.#leaseMs, this.#eventLogPath, (json) =>
        this.report(JSON.parse(json) as Trouble),
      ),
    )
    return this.#registry
  }

  /** To be written to. */
  writing(): Registry {
    const { registry } = this
    if (!this.#written) {
      this.#written = true
      flushAtExit(this.registryPath, registry)
    }
    return registry
  }

  /** A shutdown is under way: until that is over, nothing new becomes ours. */
  closing = false

  /** Runs of other bots that are being taken over, as long as it lasts. None rejects. */
  readonly adopting = new Set<Promise<unknown>>()

  refuseWhileClosing(deed = 'started'): void {
    if (!this.closing) return
    throw codedError(
      Error,
      'ERR_OWNED_SHUTTING_DOWN',
      `The supervisor is shutting down. Nothing was ${deed}; wait until shutdown() has resolved.`,
    )
  }

  announceDecisions(decisions: readonly ReapDecision[]): void {
    if (!this.events.isHeard('reap-decision')) return
    for (const decision of decisions) this.events.announce({ type: 'reap-decision', ...decision })
  }

  /** Something is wrong that no call of the bot's can be blamed for. If nobody listens, it is still said. */
  report(trouble: Trouble): void {
    const { kind, message, path, runIds } = trouble
    const event: RegistryEvent | LeaseEvent =
      kind === 'lease-lost'
        ? { type: 'lease', kind: 'lost', message, runIds: runIds ?? [] }
        : { type: 'registry', kind, message, path: path ?? this.registryPath }
    if (!this.events.announce(event)) warnOf(event, this.registryPath)
  }
}

function pathOf(given: unknown): string {
  if (given !== undefined) {
    checkString(given, 'options.registryPath')
    if (given === '')
      throw invalidValue('options.registryPath', given, 'must be the path of a file, or be left out')
  }
  const path = given ?? (fromEnvironment() || DEFAULT_PATH)
  return absolute(path, "registry's", 'options.registryPath or $SPAWN_OWNED_REGISTRY')
}

/**
 * A program that has more rights than whoever has started it (setuid) does not write where it is told by that one's environment. Node
 * does the same with variables of its own.
 */
function fromEnvironment(): string | undefined {
  const { getuid, geteuid, getgid, getegid } = process
  const isRaised = getuid?.() !== geteuid?.() || getgid?.() !== getegid?.()
  return isRaised ? undefined : process.env.SPAWN_OWNED_REGISTRY
}

/** Undefined: no log. */
function logPathOf(given: unknown, registryPath: string): string | undefined {
  if (given === undefined) return join(dirname(registryPath), DEFAULT_LOG)
  if (given === null) return undefined
  checkString(given, 'options.eventLogPath', 'of type string or null')
  if (given === '')
    throw invalidValue('options.eventLogPath', given, 'must be the path of a file, or null, or be left out')
  const path = absolute(given, "event log's", 'options.eventLogPath')
  if (path.startsWith(registryPath) || `${path}.1` === registryPath)
    throw invalidValue('options.eventLogPath', given, "must not be the registry's path, nor begin with it")
  return path
}

/** From now on: a bot may change its directory later, and its files stay where they are. */
function absolute(path: string, whose: string, option: string): string {
  try {
    return resolve(path)
  } catch (error) {
    throw codedError(
      Error,
      'ERR_OWNED_REGISTRY_PATH',
      `The ${whose} path "${path}" is relative, and the current directory is gone (${(error as Error).message}). ` +
        `Set ${option} to an absolute path.`,
    )
  }
}

function lease(given: unknown): number {
  const leaseMs = duration(given, 'options.leaseMs') ?? DEFAULT_LEASE_MS
  if (!(leaseMs >= MIN_LEASE_MS && leaseMs <= MAX_LEASE_MS))
    throw outOfRange('options.leaseMs', `>= ${MIN_LEASE_MS} && <= ${MAX_LEASE_MS}`, leaseMs)
  return Math.trunc(leaseMs)
}
