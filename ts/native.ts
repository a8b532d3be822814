// The native addon, loaded once, and the one channel through which it speaks to us.

import { existsSync } from 'node:fs'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import type * as Binding from '../native/binding.js'
import { codedError } from './errors.js'
import {
  byLibc,
  currentLibc,
  type InstalledPackage,
  notInstalledMessage,
  platformPackages,
} from './platform.js'
import { beforeNativeIsGone } from './runtimes.js'

const { SIGKILL } = constants.signals

export type NativeEvent = Binding.Event
export type LaunchOptions = Binding.LaunchOptions
export type NativeRegistry = Binding.Registry
export type NativeOwnerWatch = Binding.OwnerWatch

/** Directories that may hold the addon and the keeper, side by side: a local build first, then the platform's package. */
function* candidates(): Generator<string> {
  const local = join(__dirname, '..', 'native')
  // What was built on another system lies beside what is for that system.
  if (process.platform !== 'linux') yield join(local, `${process.platform}-${process.arch}`)
  yield local
  for (const { directory } of installedPackages()) yield directory
}

/** Usually npm has installed only the one whose libc fits, and nobody needs to ask which that is. */
function installedPackages(): InstalledPackage[] {
  const found = platformPackages(process.platform, process.arch).flatMap((name) => {
    try {
      return [{ name, directory: dirname(require.resolve(`${name}/package.json`)) }]
    } catch {
      // Not installed; `load` says so if none is.
      return []
    }
  })
  // Some installers take them all, and what is made for glibc may load beside musl and fail later.
  return found.length < 2 ? found : byLibc(found, currentLibc())
}

const suffix = process.platform === 'win32' ? '.exe' : ''

function load(): { binding: typeof Binding; keeper: string } {
  let cause: unknown
  for (const directory of candidates()) {
    const addon = join(directory, 'spawn-owned.node')
    if (!existsSync(addon)) continue
    try {
      return { binding: require(addon), keeper: join(directory, `spawn-owned-keeper${suffix}`) }
    } catch (error) {
      // For another libc, perhaps; the next one may do.
      cause ??= error
    }
  }
  const found = installedPackages().map(({ name }) => name)
  const message = notInstalledMessage(process.platform, process.arch, currentLibc(), found)
  const error = codedError(Error, 'ERR_OWNED_NOT_INSTALLED', message)
  throw Object.assign(error, cause === undefined ? {} : { cause })
}

const { binding, keeper } = load()

type Listener = (event: NativeEvent) => void
const listeners = new Map<number, Listener>()

/**
 * An event goes to the run it names; one for a run that is no longer listened to is late and of no interest.
 */
const deliver = (event: NativeEvent) => listeners.get(event.run)?.(event)
beforeNativeIsGone(() => listeners.clear())

/** This thread's link to its runs. */
const host = new binding.Host(
  keeper,
  // Internal, for measuring: 0 forks each keeper when it is needed.
  Number(process.env.SPAWN_OWNED_STOCK ?? 2),
  deliver,
)

/** To be called when the process exits: keepers may not have heard yet what they keep. */
export const introduceAll = () => host.introduceAll()

/** Throws if keepers cannot be had at all. */
export const prepare = () => host.prepare()

/** A command that is being executed, or could not even be tried. */
export interface Beginning {
  /** Why it could not, or 0. Then its streams, if there are any, are at their end. */
  readonly errno: number
  readonly pid: number
  /** Our ends of the piped descriptors, -1 where there is none. To be taken or closed. */
  readonly fds: readonly number[]
  /** Waits until the command runs, or returns the errno for which it does not; then its streams are at their end. */
  finish(listener: Listener): NativeRun | number
  /** Ends it instead, and closes what was not taken. Its entry goes with it. After a `finish` that has told the outcome, nothing happens. */
  discard(): void
}

export interface NativeRun {
  /** These return an errno, 0 if the request is on its way. */
  signal(signal: number): number
  cancel(signal: number, graceMs: number, reason: string): number
  extend(ms: number): number
  /** The answer is an event. */
  usage(): number
  /** Some of its output was read. */
  heard(): void
  /** Returns an errno, 0 for success. */
  resize(cols: number, rows: number): number
  foreground(): string | undefined
  /** The output at this descriptor is read from here on. */
  reading(fd: number): void
  /** Somebody else reads it from here on. */
  lose(fd: number): void
  /** It is about to be closed, and its name may be another's in a moment. */
  closing(fd: number): void
  /** Whether this run keeps the event loop alive. It does, until told otherwise or forgotten. */
  keepAlive(on: boolean): void
  /** To be called when the run's end has been heard. */
  forget(): void
}

/** Touches no disk. What it has to say while nobody has asked it, it says as JSON. */
export function openRegistry(
  path: string,
  instanceId: string,
  leaseMs: number,
  eventLogPath: string | undefined,
  onTrouble: (json: string) => void,
): NativeRegistry {
  return new binding.Registry(path, instanceId, leaseMs, eventLogPath, onTrouble)
}

/** Calls back whenever an owner that the registry names has died. It does not keep the event loop alive. */
export const watchOwners = (registry: NativeRegistry, onDeath: () => void): NativeOwnerWatch =>
  new binding.OwnerWatch(registry, onDeath)

/** Makes the streams of a command that is to be started later: our ends, and what its `stdio` is to be then. */
export const openStreams = (stdio: readonly number[]) => host.openStreams([...stdio])

/** How often we tell at most that output of a run was read which may be silent for so long. */
export const toldEvery = (limitMs: number) => binding.toldEvery(limitMs)

/** Begins to start a run, once the registry knows of it. To be finished in the same tick. */
export function begin(registry: NativeRegistry, options: LaunchOptions): Beginning {
  const { errno, pid, fds } = host.begin(registry, inOrder(options))
  return {
    errno,
    pid,
    fds,
    finish(listener) {
      if (errno !== 0) return errno
      const outcome = host.finish()
      return outcome.errno === 0 ? listen(outcome.run, listener) : outcome.errno
    },
    discard() {
      for (const fd of fds) host.closeStream(fd)
      try {
        const run = this.finish(() => {})
        if (typeof run === 'number') return
        run.cancel(SIGKILL, 0, 'spawn-error')
        run.forget()
      } catch {
        // Then the next one that is begun takes its place, and it is ended by that.
      }
    },
  }
}

/** As `LaunchOptions::read` in src/node/convert.rs takes them: by position, which is much faster than by name. */
function inOrder(options: LaunchOptions): unknown[] {
  return [
    options.runId,
    options.givenId,
    options.sessionId,
    options.backendId,
    options.scopeKey,
    options.service,
    options.labels,
    options.preview,
    options.file,
    options.argv,
    options.env,
    options.cwd,
    options.uid,
    options.gid,
    options.windowsHide,
    options.verbatimArguments,
    options.stdio,
    options.terminal,
    options.keepOnOwnerExit,
    options.keepOnLeaderExit,
    options.graceMs,
    options.timeoutMs,
    options.timeoutSignal,
    options.silenceMs,
    options.outputs,
    options.containment,
    options.memoryBytes,
    options.processes,
  ]
}

/** Takes a run over from an owner that is gone. It does not keep the event loop alive. */
export async function adopt(registry: NativeRegistry, key: string, listener: Listener): Promise<NativeRun> {
  // A number of its own before it can say anything; what it says is passed on when the caller has got hold of it.
  const run = host.reserve()
  const early: NativeEvent[] = []
  const native = listen(run, (event) => early.push(event))
  native.keepAlive(false)
  try {
    settled(await host.adopt(registry, key, run))
  } catch (error) {
    native.forget()
    throw error
  }
  setImmediate(() => {
    // Forgotten meanwhile.
    if (!listeners.has(run)) return
    listeners.set(run, listener)
    for (const event of early) listener(event)
  })
  return native
}

/** The native side does not reject: a rejection could not carry a code. */
export function settled<T>(json: string): T {
  const result = JSON.parse(json)
  if (result.error) throw codedError(Error, result.error.code, result.error.message)
  return result
}

/** The same for what is long, and need not be read at once. */
export function unread<T>(json: string): () => T {
  if (json.startsWith('{"error":')) settled(json)
  return () => JSON.parse(json) as T
}

/** No event of a new run can be missed: they are delivered by the event loop, which is not running now. */
function listen(run: number, listener: Listener): NativeRun {
  listeners.set(run, listener)
  let holding = true
  hold(1)
  return {
    signal: (signal) => host.signal(run, signal),
    cancel: (signal, graceMs, reason) => host.cancel(run, signal, graceMs, reason),
    extend: (ms) => host.extend(run, ms),
    usage: () => host.usage(run),
    resize: (cols, rows) => host.resize(run, cols, rows),
    foreground: () => host.foreground(run) ?? undefined,
    heard: () => host.heard(run),
    reading: (fd) => host.reading(run, fd),
    lose: (fd) => host.lose(run, fd),
    closing: (fd) => host.closing(run, fd),
    keepAlive(on) {
      if (on === holding || !listeners.has(run)) return
      holding = on
      hold(on ? 1 : -1)
    },
    forget() {
      if (!listeners.delete(run)) return
      host.forget(run)
      if (holding) hold(-1)
    },
  }
}

let holders = 0

/** The event loop stays alive as long as one run wants it to. */
function hold(change: 1 | -1): void {
  const before = holders
  holders += change
  if (before === 0) host.ref()
  else if (holders === 0) host.unref()
}

/** Ends the readable side of an open stream, see `end_stream` in the addon. */
export function endStream(fd: number): void {
  binding.endStream(fd)
}

/** A descriptor for a stream, which is ours from here on; until then the native side looks after it. */
export const takeStream = (stream: number) => host.takeStream(stream)

/** Closes a stream that was not taken. */
export const closeStream = (fd: number) => host.closeStream(fd)

/** Two ends over which a helper can lend us an end of a channel: ours, a stream, and its standard input, a stream's descriptor (Windows: one of Node's). */
export const openBorrowing = () => host.openBorrowing() as [ours: number, theirs: number]

/** Waits for what the helper of this PID lends, which is a stream; takes our end. */
export const borrow = (ours: number, helper: number) => host.borrow(ours, helper)

/** Names a process for ever; null if there is none, or if that cannot be found out. */
export const offers = () => binding.offers()

export const captureStartToken = (pid: number) => binding.captureStartToken(pid)

/** Whether the process of that name is alive. */
export const isSameProcess = (token: string) => binding.isSameProcess(token)

/** What has become of that process. `unknown`: hands off. */
export const processState = (token: string) => binding.processState(token)

/** Who answers at a port; on some systems nobody can tell. */
export type PortHolder = { whose: 'tree' | 'unknown' } | { whose: 'stranger'; pid?: number; command?: string }

/** Whether that is the tree of the run with this keeper. */
export async function portHolder(
  address: string,
  port: number,
  keeper: string | undefined,
): Promise<PortHolder> {
  return settled<PortHolder>(await binding.portHolder(address, port, keeper))
}

/** Where the keeper's executable is. */
export const keeperPath = keeper
