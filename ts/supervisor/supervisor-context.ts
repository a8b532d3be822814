// SupervisorContext: the state that all parts of a supervisor share.

import type { EventEmitter } from 'node:events'
import { dirname, join, resolve } from 'node:path'
import type { LeaseEvent, ReapDecision, RegistryEvent, RunDefaults, SupervisorOptions } from '../../index.js'
import { openRegistry, rotateFile } from '../native/addon.js'
import { flushAtExit, Registry } from '../registry/registry.js'
import { type RegistryWarning, warnOnce } from '../registry/registry-warnings.js'
import { RunHistory } from '../registry/run-history.js'
import { readDefaults } from '../run/run-defaults.js'
import { RunTable } from '../run/run-table.js'
import { codedError, invalidValue, outOfRange } from '../util/errors.js'
import { SUPERVISOR } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { freshId } from '../util/unique-id.js'
import { checkString, duration } from '../util/validation.js'
import { SupervisorEvents } from './supervisor-events.js'

const DEFAULT_GRACE_MS = 5000
const DEFAULT_LEASE_MS = 30_000
const MIN_LEASE_MS = 1000
const MAX_LEASE_MS = 2 ** 31 - 1
const DEFAULT_PATH = 'data/process-registry.json'
const DEFAULT_LOG = 'orphan-events.log'

export class SupervisorContext {
  readonly registryPath: string
  readonly graceMs: number
  /** The defaults of run options, except `graceMs`. */
  readonly defaults: RunDefaults | undefined
  readonly runs = new RunTable()
  #leaseMs: number
  #eventLogPath: string | undefined
  #instanceId: string | undefined
  #registry: Registry | undefined
  #written = false
  readonly events: SupervisorEvents
  /** How ended runs ended. Undefined if the caller turned it off. */
  readonly history: RunHistory | undefined

  constructor(options: SupervisorOptions | undefined, emitter: EventEmitter) {
    const given = readOptions(options, SUPERVISOR, { of: 'createSupervisor' })
    this.registryPath = pathOf(given.registryPath)
    this.graceMs = duration(given.graceMs, 'options.graceMs') ?? DEFAULT_GRACE_MS
    this.defaults = readDefaults(given, this.graceMs)
    this.#leaseMs = lease(given.leaseMs)
    this.#eventLogPath = logPathOf(given.eventLogPath, this.registryPath)
    this.events = new SupervisorEvents(emitter)
    const historyPath = historyPathOf(given.historyPath, this.registryPath)
    if (historyPath !== undefined) {
      this.history = new RunHistory(historyPath, rotateFile, (problem) => this.report(problem))
    }
  }

  get instanceId(): string {
    this.#instanceId ??= freshId()
    return this.#instanceId
  }

  /** The registry, for reading. */
  get registry(): Registry {
    this.#registry ??= new Registry(
      openRegistry(this.registryPath, this.instanceId, this.#leaseMs, this.#eventLogPath, (json) =>
        this.report(JSON.parse(json) as RegistryWarning),
      ),
      (problem) => this.report(problem),
    )
    return this.#registry
  }

  /** Returns the registry, for writing. The bot flushes it at exit from now on. */
  writing(): Registry {
    const { registry } = this
    if (!this.#written) {
      this.#written = true
      flushAtExit(registry)
    }
    return registry
  }

  /**
   * Runs the cleanups and closes the registry. No method reads or writes it after that.
   *
   * Runs that are still alive (a service, a survivor) keep using it.
   */
  async release(): Promise<void> {
    for (const cleanup of this.cleanups) cleanup()
    await this.history?.flush()
    await this.#registry?.close()
  }

  /** Functions that `release` calls: they stop watches and remove signal handlers. */
  readonly cleanups = new Set<() => void>()

  /** The supervisor is closed or being closed. Every method except `close` throws. */
  closed = false

  refuseWhenClosed(): void {
    if (!this.closed) return
    throw codedError(
      Error,
      'ERR_OWNED_CLOSED',
      'The supervisor is closed. Nothing was done. Create another supervisor with createSupervisor().',
    )
  }

  /** A shutdown is in progress. Until it ends, the supervisor starts and adopts nothing. */
  closing = false

  /** Adoptions in progress of runs of other bots. None rejects. */
  readonly adopting = new Set<Promise<unknown>>()

  /**
   * Calls in progress that end orphans, such as `reapOrphans`. None rejects.
   *
   * `close` waits for them before it releases the registry.
   */
  readonly reaping = new Set<Promise<unknown>>()

  /**
   * Throws if the supervisor is closed or shutting down.
   *
   * A call that began before a close can get here after it. It must not start or adopt anything.
   */
  refuseWhileClosing(action = 'started'): void {
    this.refuseWhenClosed()
    if (!this.closing) return
    throw codedError(
      Error,
      'ERR_OWNED_SHUTTING_DOWN',
      `The supervisor is shutting down. Nothing was ${action}. Wait until shutdown() resolves.`,
    )
  }

  emitDecisions(decisions: readonly ReapDecision[]): void {
    if (!this.events.hasSubscribers('reap-decision')) return
    for (const decision of decisions) this.events.emit({ type: 'reap-decision', ...decision })
  }

  /**
   * Reports a problem that belongs to no call of the bot: as an event, or, if the supervisor has no
   * listener, as a process warning.
   */
  report(warning: RegistryWarning): void {
    const { kind, message, path, runIds } = warning
    const event: RegistryEvent | LeaseEvent =
      kind === 'lease-lost'
        ? { type: 'lease', kind: 'lost', message, runIds: runIds ?? [] }
        : { type: 'registry', kind, message, path: path ?? this.registryPath }
    if (!this.events.emit(event)) warnOnce(event, this.registryPath)
  }
}

function pathOf(given: unknown): string {
  if (given !== undefined) {
    checkString(given, 'options.registryPath')
    if (given === '')
      throw invalidValue('options.registryPath', given, 'must be the path of a file, or undefined')
  }
  const path = given ?? (fromEnvironment() || DEFAULT_PATH)
  return absolute(path, "registry's", 'options.registryPath or $SPAWN_OWNED_REGISTRY')
}

/**
 * Returns the registry path of the environment.
 *
 * A setuid or setgid program has more rights than the user that started it. That user must not
 * choose where it writes, so it ignores the variable. Node treats its own variables like this.
 */
function fromEnvironment(): string | undefined {
  const { getuid, geteuid, getgid, getegid } = process
  const isRaised = getuid?.() !== geteuid?.() || getgid?.() !== getegid?.()
  return isRaised ? undefined : process.env.SPAWN_OWNED_REGISTRY
}

/** Returns the path of the event log, or undefined for no log. */
function logPathOf(given: unknown, registryPath: string): string | undefined {
  if (given === undefined) return join(dirname(registryPath), DEFAULT_LOG)
  if (given === null) return undefined
  checkString(given, 'options.eventLogPath', 'of type string or null')
  if (given === '')
    throw invalidValue('options.eventLogPath', given, 'must be the path of a file, null or undefined')
  const path = absolute(given, "event log's", 'options.eventLogPath')
  if (path.startsWith(registryPath) || `${path}.1` === registryPath)
    throw invalidValue('options.eventLogPath', given, 'must not be or start with the path of the registry')
  return path
}

/** Returns the path of the history, or undefined for none. */
function historyPathOf(given: unknown, registryPath: string): string | undefined {
  if (given === undefined) return `${registryPath}.history`
  if (given === null) return undefined
  checkString(given, 'options.historyPath', 'of type string or null')
  if (given === '')
    throw invalidValue('options.historyPath', given, 'must be the path of a file, null or undefined')
  const path = absolute(given, "history's", 'options.historyPath')
  if (path.startsWith(registryPath))
    throw invalidValue('options.historyPath', given, 'must not be or start with the path of the registry')
  return path
}

/**
 * Returns the absolute path now: a bot can change its directory later, and its files must not move.
 */
function absolute(path: string, whose: string, option: string): string {
  try {
    return resolve(path)
  } catch (error) {
    throw codedError(
      Error,
      'ERR_OWNED_REGISTRY_PATH',
      `The ${whose} path "${path}" is relative, and the current directory does not exist (${(error as Error).message}). ` +
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
