// Wraps the functions of the native addon, and delivers its events to the runs.

import { constants } from 'node:os'
import type * as Binding from '../../native/binding.js'
import { debug } from '../util/debug.js'
import { codedError } from '../util/errors.js'
import { beforeNativeIsGone } from '../util/runtimes.js'
import { setImmediate } from '../util/timers.js'
import { load } from './load-addon.js'

const { SIGKILL } = constants.signals

export type NativeEvent = Binding.Event
/** How a run ended, as the native side reports it. */
export type NativeEnd = Binding.End
/** The launch options of src/node/launch_options.rs. None may be omitted, but some undefined. */
export type LaunchOptions = { [Name in keyof Required<Binding.LaunchOptions>]: Binding.LaunchOptions[Name] }
export type NativeRegistry = Binding.Registry
export type NativeOwnerWatch = Binding.OwnerWatch

const { binding, keeper } = load()
debug('loaded the addon of %s', keeper)

// Native code must not call getenv, because it races with writes to `process.env`. See
// src/start_environment.rs.
const noTrace = binding.captureEnvironment(binding.startVariables().map((name) => process.env[name]))
if (noTrace) process.emitWarning(noTrace, { code: 'OWNED_DEBUG' })

type Listener = (event: NativeEvent) => void

/** The runs of this thread, by the ID that their events have. */
const runs = new Map<number, NativeRun>()

/** Passes an event to the listener of its run. An event for a forgotten run is dropped. */
const deliver = (event: NativeEvent) => runs.get(event.run)?.listener(event)
beforeNativeIsGone(() => runs.clear())

let created: Binding.Host | undefined
let isListening = false

/** The native side of this thread's runs, created at its first use. */
function host(): Binding.Host {
  created ??= new binding.Host(
    keeper,
    // The number of keepers in stock. Internal, for benchmarks: 0 forks each keeper on demand.
    Number(process.env.SPAWN_OWNED_STOCK ?? 2),
  )
  return created
}

/**
 * The native side, with a callback for the events of runs.
 *
 * A program without runs has no callback: jest would report it as an open handle, although it does
 * not keep the event loop alive.
 */
function listeningHost(): Binding.Host {
  if (!isListening) host().listen(deliver)
  isListening = true
  return host()
}

/** Releases the callback, if no run is left. The next run creates it again. */
export function stopListening(): void {
  if (!isListening || runs.size > 0) return
  isListening = false
  host().stopListening()
}

/** Sends pending rules to the keepers. Call it at exit: a keeper may not have got its rules yet. */
export const sendAllRules = () => created?.sendAllRules()

/** Throws if no keeper can be started. */
export const prepare = () => host().prepare()

/** The start of a command, between `begin` and `finish`. */
export interface PendingStart {
  /** Why the command cannot be started, or 0. If not 0, its streams are at their end. */
  readonly errno: number
  readonly pid: number
  /** The bot's ends of the pipes, -1 for other descriptors. The caller must take or close them. */
  readonly fds: readonly number[]
  /**
   * Waits until the command runs.
   *
   * Returns an errno if the command could not be executed. Its streams are at their end then.
   */
  finish(listener: Listener): NativeRun | number
  /**
   * Terminates the command, closes the streams that were not taken, and removes the entry.
   *
   * Does nothing after a `finish` that returned.
   */
  discard(): void
}

/**
 * A run of this thread. It keeps the event loop alive until `forget` or `keepAlive(false)`.
 *
 * A method that returns a number returns an errno, or 0 if the request was sent.
 */
export class NativeRun {
  /** The ID of the run on the native side. A native object instead would make a spawn slower. */
  readonly #id: number
  listener: Listener
  #holding = true

  /**
   * No event is missed: the event loop delivers them, and it does not run before the call that
   * starts the run returns.
   */
  constructor(id: number, listener: Listener) {
    this.#id = id
    this.listener = listener
    runs.set(id, this)
    hold(1)
  }

  get isForgotten(): boolean {
    return !runs.has(this.#id)
  }

  signal(signal: number): number {
    return host().signal(this.#id, signal)
  }

  cancel(signal: number, graceMs: number, reason: string): number {
    return host().cancel(this.#id, signal, graceMs, reason)
  }

  extend(ms: number): number {
    return host().extend(this.#id, ms)
  }

  /** Replaces the overall timeout, from now on. 0 removes it. */
  setOverallTimeout(ms: number, signal: number): number {
    return host().setOverallTimeout(this.#id, ms, signal)
  }

  /** Replaces the idle timeout, from now on. 0 removes it. `outputs` are those that the bot has. */
  setIdleTimeout(ms: number, outputs: number[]): void {
    host().setIdleTimeout(this.#id, ms, outputs)
  }

  /** Requests the resource usage. The answer is an event. */
  usage(): number {
    return host().usage(this.#id)
  }

  resize(cols: number, rows: number): number {
    return host().resize(this.#id, cols, rows)
  }

  foreground(): string | undefined {
    return host().foreground(this.#id) ?? undefined
  }

  /** Reports that the bot read output of the run. */
  outputRead(): void {
    host().outputRead(this.#id)
  }

  /** The bot starts to read the output at this descriptor. */
  reading(fd: number): void {
    host().reading(this.#id, fd)
  }

  /** Another process reads this output from now on. */
  handOver(fd: number): void {
    host().handOver(this.#id, fd)
  }

  /** The bot is about to close this output. Another file can get the same value right after. */
  closing(fd: number): void {
    host().closing(this.#id, fd)
  }

  /** Sets whether the run keeps the event loop alive. */
  keepAlive(on: boolean): void {
    if (on === this.#holding || this.isForgotten) return
    this.#holding = on
    hold(on ? 1 : -1)
  }

  /** Drops the run. Call it after the run's end. */
  forget(): void {
    if (!runs.delete(this.#id)) return
    host().forget(this.#id)
    if (this.#holding) hold(-1)
  }
}

/** Opens a registry without disk access. `onWarning` gets problems outside of calls, as JSON. */
export function openRegistry(
  path: string,
  instanceId: string,
  leaseMs: number,
  eventLogPath: string | undefined,
  onWarning: (json: string) => void,
): NativeRegistry {
  return new binding.Registry(path, instanceId, leaseMs, eventLogPath, onWarning)
}

/** Calls `onDeath` when an owner in the registry dies. Does not keep the event loop alive. */
export const watchOwners = (registry: NativeRegistry, onDeath: () => void): NativeOwnerWatch =>
  new binding.OwnerWatch(registry, onDeath)

/**
 * Creates the streams of a command that starts later: the bot's ends, and the `stdio` for the
 * start.
 */
export const openStreams = (stdio: readonly number[]) => host().openStreams([...stdio])

/**
 * Returns the shortest interval, in ms, for reports of output, given the idle timeout of the run.
 */
export const outputReportInterval = (limitMs: number) => binding.outputReportInterval(limitMs)

/** The names of the launch options, in the order in which the native side reads their values. */
const launchOptionNames = binding.launchOptionNames()

/**
 * Writes the entry of a run, and begins to start it. Call `finish` in the same tick.
 *
 * `stdio` has a value for each descriptor of the command. `outputs` are the bot's ends of outputs
 * that `openStreams` created.
 */
export function begin(
  registry: NativeRegistry,
  options: LaunchOptions,
  stdio: number[],
  outputs: number[],
): PendingStart {
  // By position is much faster than by name.
  const values = launchOptionNames.map((name) => options[name])
  const { errno, pid, fds } = listeningHost().begin(registry, values, stdio, outputs)
  return {
    errno,
    pid,
    fds,
    finish(listener) {
      if (errno !== 0) return errno
      const outcome = host().finish()
      return outcome.errno === 0 ? new NativeRun(outcome.run, listener) : outcome.errno
    },
    discard() {
      for (const fd of fds) host().closeStream(fd)
      try {
        const run = this.finish(() => {})
        if (typeof run === 'number') return
        run.cancel(SIGKILL, 0, 'spawn-error')
        run.forget()
      } catch {
        // The next `begin` takes its place, and terminates it.
      }
    },
  }
}

/** Adopts a run of an owner that is gone. The run does not keep the event loop alive. */
export async function adopt(registry: NativeRegistry, key: string, listener: Listener): Promise<NativeRun> {
  // Reserve the id first, because events can arrive before the adoption resolves. Collect them
  // until the caller has the run.
  const id = listeningHost().reserve()
  const early: NativeEvent[] = []
  const run = new NativeRun(id, (event) => early.push(event))
  run.keepAlive(false)
  try {
    settled(await host().adopt(registry, key, id))
  } catch (error) {
    run.forget()
    throw error
  }
  setImmediate(() => {
    // The caller has forgotten the run meanwhile.
    if (run.isForgotten) return
    run.listener = listener
    for (const event of early) listener(event)
  })
  return run
}

/**
 * Parses a result of the native side, and throws if it is an error.
 *
 * The native promises do not reject, because a rejection cannot have a `code`.
 */
export function settled<T>(json: string): T {
  const result = JSON.parse(json)
  if (result?.error) throw codedError(Error, result.error.code, result.error.message)
  return result
}

/** Does the same as `settled`, but returns a function that parses a long result later. */
export function unread<T>(json: string): () => T {
  if (json.startsWith('{"error":')) settled(json)
  return () => JSON.parse(json) as T
}

let holders = 0

/** Keeps the event loop alive as long as at least one run needs that. */
function hold(change: 1 | -1): void {
  const before = holders
  holders += change
  if (before === 0) host().ref()
  else if (holders === 0) host().unref()
}

/**
 * Returns the identity of the socket at a file descriptor, or null if the descriptor is not open.
 *
 * The number of the descriptor is no identity: another socket can get it after a close.
 */
export const streamId = (fd: number): string | null => binding.streamId(fd)

/** Ends the readable side of a stream. Does nothing if its descriptor is another socket now. */
export function endStream(fd: number, id: string): void {
  binding.endStream(fd, id)
}

/**
 * Returns the file descriptor of a stream. The caller owns it then; before, the native side did.
 */
export const takeStream = (stream: number) => host().takeStream(stream)

/** Closes a stream that was not taken. */
export const closeStream = (fd: number) => host().closeStream(fd)

/**
 * Opens a connection over which a helper process lends the end of a channel.
 *
 * Returns the bot's end, a stream, and the helper's standard input, the descriptor of a stream. On
 * Windows the latter is a descriptor of Node's C library.
 */
export const openBorrowing = () => host().openBorrowing() as [ours: number, theirs: number]

/** Waits for the stream that the helper with this PID lends. Consumes the bot's end. */
export const borrow = (ours: number, helper: number) => host().borrow(ours, helper)

/** Returns the capabilities of this system as JSON. */
export const capabilitiesJson = () => binding.capabilities()

/** Returns the start token of a process, or null if it does not exist or cannot be read. */
export const captureStartToken = (pid: number) => binding.captureStartToken(pid)

/** Whether a keeper is an ancestor of this process. Always false on Windows. */
export const isBelowKeeper = () => binding.isBelowKeeper()

/** Whether the process with this start token is alive. */
export const isSameProcess = (token: string) => binding.isSameProcess(token)

/** Returns the state of the process with this start token. Do not act on `unknown`. */
export const processState = (token: string) => binding.processState(token)

/** Which process listens at a port: one of the run's tree or another. Some systems do not tell. */
export type PortHolder = { whose: 'tree' | 'unknown' } | { whose: 'stranger'; pid?: number; command?: string }

/** Returns which process listens at a port, relative to the run with this keeper. */
export async function portHolder(
  address: string,
  port: number,
  keeper: string | undefined,
): Promise<PortHolder> {
  return settled<PortHolder>(await binding.portHolder(address, port, keeper))
}

/**
 * Renames a file that is longer than `limit` to the same name with `.1`. Of several bots that do
 * this at the same time, one renames the file.
 */
export async function rotateFile(path: string, limit: number): Promise<void> {
  settled(await binding.rotateFile(path, limit))
}

/** The path of the keeper's executable. */
export const keeperPath = keeper
