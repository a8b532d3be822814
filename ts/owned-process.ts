// OwnedProcess: a ChildProcess to its callers, a run to its owner.

import { ChildProcess } from 'node:child_process'
import { EventEmitter } from 'node:events'
import type net from 'node:net'
import type { CancelOptions, RunEvent, RunExit, RunState, RunUsage, TerminationReason } from '../index.js'
import { readCancelOptions } from './cancel-options.js'
import { duration } from './checks.js'
import { Ends } from './ends.js'
import { abortError, codedError, errnoError, invalidType } from './errors.js'
import type { Details } from './events.js'
import { describeCalledOff, describeExit, describeFailedStart, type Ending } from './exit.js'
import type { BorrowedChannel } from './ipc.js'
import { type NativeEvent, type NativeRun, toldEvery } from './native.js'
import type { RunSettings } from './options.js'
import { OutputMeter } from './output-meter.js'
import type { Owner } from './owner.js'
import { checkSize } from './pty.js'
import { delivered, endsByDefault, signalName, signalNumber } from './signals.js'
import type { Pipes } from './stdio.js'
import { isWindows } from './windows.js'

/**
 * The class is built on EventEmitter and then placed below ChildProcess (see the end of this file): `instanceof
 * ChildProcess` holds, and no libuv process handle is allocated that would never be used.
 */
export class OwnedProcess extends EventEmitter {
  static override readonly name = 'OwnedProcess'

  readonly runId: string
  readonly sessionId: string | undefined
  readonly scopeKey: string | undefined
  readonly service: string | undefined
  readonly backendId: string | undefined
  readonly labels: Readonly<Record<string, string>>

  pid: number | undefined
  connected = false
  killed = false
  exitCode: number | null = null
  signalCode: NodeJS.Signals | null = null
  spawnfile: string
  spawnargs: readonly unknown[]

  #settings: RunSettings
  #owner: Owner
  #native: NativeRun | undefined
  #state: RunState = 'starting'
  #startedAt = 0
  #ending: Ending | undefined
  /** It waits for others to end before it is started. */
  #postponed = false
  /** It is known to run, or it has said something before that was known. */
  #runs = false
  #spoke = false
  #output: OutputMeter
  /** One question at a time; whoever asks meanwhile gets the same answer. */
  #usage: Promise<RunUsage> | undefined
  #answerUsage: ((usage: RunUsage) => void) | undefined
  #keepsAlive = true
  #ends = new Ends(this)
  #exited = false
  #stopListeningForAbort: (() => void) | undefined
  #end: Promise<RunExit>
  #settle!: (exit: RunExit) => void

  constructor(settings: RunSettings, owner: Owner) {
    super()
    this.runId = settings.runId
    this.sessionId = settings.sessionId
    this.scopeKey = settings.scopeKey
    this.service = settings.service
    this.backendId = settings.backendId
    this.labels = settings.labels
    this.spawnfile = settings.file
    this.spawnargs = settings.argv
    this.#settings = settings
    this.#owner = owner
    this.#output = new OutputMeter(settings.silenceMs > 0 ? toldEvery(settings.silenceMs) : undefined)
    this.#end = new Promise((resolve) => {
      this.#settle = resolve
    })
  }

  get stdin(): net.Socket | null | undefined {
    return this.#ends.stream(0)
  }

  get stdout(): net.Socket | null | undefined {
    return this.#ends.stream(1)
  }

  get stderr(): net.Socket | null | undefined {
    return this.#ends.stream(2)
  }

  get stdio(): (net.Socket | null)[] | undefined {
    return this.#ends.all()
  }

  // Plain properties in Node, and some libraries put their own streams there.
  set stdin(stream) {
    this.#replace('stdin', stream)
  }

  set stdout(stream) {
    this.#replace('stdout', stream)
  }

  set stderr(stream) {
    this.#replace('stderr', stream)
  }

  set stdio(streams) {
    this.#replace('stdio', streams)
  }

  get state(): RunState {
    return this.#state
  }

  /** Whether the run was ended by a cancel, as opposed to having exited before the cancel reached it. */
  get wasCancelled(): boolean {
    return this.#ending === 'cancel'
  }

  /** It runs, and is to outlive its bot. One that waits to be started is nothing yet that could be kept. */
  get isKept(): boolean {
    return this.#settings.keepOnOwnerExit && !this.#postponed
  }

  wait(): Promise<RunExit> {
    return this.#end
  }

  async cancel(options?: CancelOptions): Promise<RunExit> {
    const { signal, graceMs, reason } = readCancelOptions(options)
    this.#cancel(signal, graceMs ?? this.#settings.graceMs, reason)
    return this.#end
  }

  kill(signal?: NodeJS.Signals | number): boolean {
    const number = signal === 0 ? 0 : delivered(signalNumber(signal === undefined ? 'SIGTERM' : signal))
    if (this.#postponed) {
      if (!endsByDefault(number)) return false
      this.#callOff('manual-cancel')
      return true
    }
    if (this.#exited || this.#native === undefined) return false
    const errno = this.#native.signal(number)
    if (errno !== 0 && !this.#isOver(errno)) return false
    this.killed = true
    return true
  }

  extendDeadline(ms: number): boolean {
    const more = duration(ms, 'ms')
    if (more === undefined) throw invalidType('ms', 'of type number', ms)
    if (this.#settings.timeoutMs === 0 && this.#settings.silenceMs === 0) {
      throw codedError(
        Error,
        'ERR_OWNED_NO_DEADLINE',
        `Run "${this.runId}" has no deadline that could be moved. Give it options.timeoutMs or options.noOutputTimeoutMs.`,
      )
    }
    if (this.#postponed) {
      if (this.#settings.timeoutMs > 0) this.#settings.timeoutMs += more
      return true
    }
    return this.#state === 'running' && this.#native?.extend(more) === 0
  }

  resize(cols: number, rows: number): void {
    checkSize(cols, 'cols')
    checkSize(rows, 'rows')
    const { terminal } = this.#settings
    if (!terminal) {
      throw codedError(
        Error,
        'ERR_OWNED_NO_TERMINAL',
        `Run "${this.runId}" has no terminal that could be resized. Start it with options.pty.`,
      )
    }
    if (this.#postponed) Object.assign(terminal, { cols, rows })
    else if (this.#exited || this.#native?.resize(cols, rows) !== 0) {
      throw codedError(
        Error,
        'ERR_OWNED_TERMINAL_GONE',
        `The terminal of run "${this.runId}" cannot be resized: it is gone. Resize before 'exit', or look at exitCode and signalCode first.`,
      )
    }
  }

  /** The name of who is in the foreground of its terminal, if it has one. For `spawn-owned/node-pty`. */
  get foreground(): string | undefined {
    return this.#native?.foreground()
  }

  usage(): Promise<RunUsage> {
    // A keeper that cannot be told is gone, and the tree with it.
    if (this.#usage === undefined && (this.#state === 'exited' || this.#native?.usage() !== 0))
      return Promise.resolve(NOTHING_USED)
    this.#usage ??= new Promise((resolve) => {
      this.#answerUsage = resolve
    })
    return this.#usage
  }

  ref(): void {
    this.#keepsAlive = true
    this.#native?.keepAlive(true)
  }

  unref(): void {
    this.#keepsAlive = false
    this.#native?.keepAlive(false)
  }

  /** Node's undocumented way to start a ChildProcess made by hand; ours is started when it is made. */
  spawn(): never {
    throw codedError(
      Error,
      'ERR_OWNED_ALREADY_STARTED',
      'This run was started by spawnOwned; start another one.',
    )
  }

  [Symbol.dispose](): void {
    if (!this.killed) this.kill()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cancel()
  }

  // ---- for spawnOwned only -------------------------------------------------------------------------------------------

  /** The command is about to be executed. */
  starting(): void {
    this.#startedAt = performance.now()
  }

  /** Our ends of the command's streams. */
  attach(fds: readonly number[]): Pipes | undefined {
    // Those of a run that was postponed were made when it was, and handed out.
    return this.#ends.attach(fds, this.#settings.terminal !== undefined, {
      closed: () => this.#ends.closeOne(),
      reading: (fd) => this.#native?.reading(fd),
      lent: (fd) => this.#native?.lose(fd),
      closing: (fd) => this.#native?.closing(fd),
      heard: () => this.#onOutput(),
    })
  }

  /** It is going to be started later, if nobody calls it off. */
  postpone(fds: readonly number[], channel: BorrowedChannel | undefined): void {
    this.#postponed = true
    this.attach(fds)
    if (channel) this.#ends.attachChannel(channel)
    this.#owner.runs.add(this)
    this.#listenForAbort()
  }

  /** The command runs. */
  started(pid: number, native: NativeRun, channel: BorrowedChannel | undefined): void {
    this.#native = native
    this.pid = pid
    this.#state = 'running'
    process.nextTick(() => {
      this.#tell('spawn', { commandPreview: this.#settings.preview })
      this.emit('spawn')
    })
    if (this.#postponed) {
      this.#postponed = false
      if (!this.#keepsAlive) native.keepAlive(false)
      this.#ends.tellReading()
      return
    }
    this.#owner.runs.add(this)
    if (channel) this.#ends.attachChannel(channel)
    this.#listenForAbort()
  }

  /** The command could not be started: `error` follows on the next tick, and then `close`. */
  failed(errno: number, channel: BorrowedChannel | undefined): void {
    if (channel && !this.#postponed) this.#ends.attachChannel(channel)
    process.nextTick(() => this.#onRefused(errno))
  }

  /** What was postponed cannot be started at all. Not from here: whoever throws when it hears of it shall be the bot's own. */
  failedToStart(error: NodeJS.ErrnoException): void {
    // What the system has refused is counted where it was.
    if (error.errno === undefined) this.#owner.registry.countUnstarted('spawn-error')
    process.nextTick(() => this.#onFailed(error, error.errno ?? null))
  }

  /** Our ends of its outputs that can still be listened to. */
  openOutputs(): number[] {
    return this.#ends.openOutputs()
  }

  /**
   * What the native side tells. An exit is passed on after everything that was readable when it was told: what the command
   * wrote before it exited is then seen before its exit.
   *
   * Once round the event loop, and not just to the end of this turn: several events may be told in one turn, and what was
   * written between the first and the last of them is not known to this turn. The next one asks the system again.
   */
  onNative(event: NativeEvent): void {
    this.#ends.inDueTime(() => this.#handle(event))
  }

  // ---- what happens ---------------------------------------------------------------------------------------------------

  #handle(event: NativeEvent): void {
    switch (event.kind) {
      case 'refused':
        this.#onRefused(event.errno ?? 0)
        break
      case 'started':
        this.#onStarted()
        break
      case 'warning':
        this.#onWarning(event)
        break
      case 'ending':
        this.#onEnding(event)
        break
      case 'usage':
        this.#onUsage(usageOf(event))
        break
      case 'exit':
        this.#onExit(event.code ?? null, event.signal === undefined ? null : signalName(event.signal))
        break
      case 'signal-failed':
        this.#onSignalFailed(event.errno ?? 0)
        break
      case 'extinct':
        this.#onExtinct(event)
        break
    }
  }

  /** It does not run, and nothing of it exists. */
  #onRefused(errno: number): void {
    const error = Object.assign(errnoError(errno, `spawn ${this.spawnfile}`), {
      path: this.spawnfile,
      spawnargs: this.spawnargs.slice(1),
    })
    this.#onFailed(error, -errno)
  }

  #onFailed(error: Error, exitCode: number | null): void {
    if (this.#state === 'exited') return
    this.#exited = true
    this.exitCode = exitCode
    if (this.#native || this.#postponed) this.#leaveTable()
    this.#postponed = false
    this.#native?.forget()
    this.#stopListeningForAbort?.()
    this.#finish(describeFailedStart(this.runId, error.message))
    this.#ends.closeStdin()
    this.emit('error', error)
    this.#ends.afterExit()
    this.#ends.endStreams()
  }

  #onStarted(): void {
    this.#runs = true
    this.#tell('started', {})
    if (this.#spoke && this.#output.isNews(performance.now())) this.#tell('output', {})
  }

  #onWarning({ deadline = 'overall', limitMs = 0, remainingMs = 0 }: NativeEvent): void {
    this.#tell('deadline-warning', { deadline, limitMs, remainingMs })
  }

  #onEnding({ ending, reason = 'lost' }: NativeEvent): void {
    this.#state = 'exiting'
    // Node's `timeout` option kills, and says so.
    if (ending === 'overall-timeout') this.killed = true
    this.#tell('exiting', { reason })
  }

  /** Some of its output was read. That is told now and then, not each time. */
  #onOutput(): void {
    const now = performance.now()
    if (this.#output.isDue(now)) this.#native?.heard()
    // That it runs may be told later than what it says, and its last words may be read when its end was told.
    if (!this.#runs) this.#spoke = true
    else if (this.#state !== 'exited' && this.#output.isNews(now)) this.#tell('output', {})
  }

  #onExit(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#exited) return
    this.#exited = true
    // Declared descendants are no end.
    if (!this.#settings.keepOnLeaderExit && this.#state !== 'exited') this.#state = 'exiting'
    if (signal) this.signalCode = signal
    else this.exitCode = code
    this.#stopListeningForAbort?.()
    if (!this.#isTalkedTo()) this.#ends.closeStdin()
    this.#ends.tellChannel()
    this.emit('exit', this.exitCode, this.signalCode)
    this.#ends.afterExit()
  }

  /** What it means that a signal could not even be sent. Throws if there is no such signal on this system, as Node does. */
  #isOver(errno: number): boolean {
    const error = errnoError(errno, 'kill')
    if (error.code === 'EINVAL' || error.code === 'ENOSYS') throw error
    // The keeper has ended, so the root has too, but nobody here has heard of it yet: like a zombie in Node.
    if (error.code === 'EPIPE' || error.code === 'ECONNRESET') return true
    // Elsewhere it was not the process that refused, but the way to its keeper.
    if (isWindows) this.#onSignalFailed(errno)
    return false
  }

  /** ESRCH is an exit that we have not heard of yet. */
  #onSignalFailed(errno: number): void {
    const error = errnoError(errno, 'kill')
    if (error.code !== 'ESRCH') this.emit('error', error)
  }

  #onExtinct(event: NativeEvent): void {
    this.#ending = event.ending ?? 'lost'
    this.#native?.forget()
    this.#leaveTable()
    const escaped = event.escaped ?? []
    this.#finish(
      describeExit({
        runId: this.runId,
        ending: this.#ending,
        reason: event.reason ?? 'lost',
        exitCode: this.exitCode,
        signal: this.signalCode,
        durationMs: Math.round(performance.now() - this.#startedAt),
        limitMs: event.limitMs ?? 0,
        escaped,
        survivors: event.survivors ?? [],
      }),
    )
    // Nobody could tell how the root ended: its keeper died first, or it survived. What is known is that it is over.
    this.#onExit(null, null)
    this.#ends.closeStdin()
    this.#ends.end()
  }

  /** The root may have been a wrapper, whose stdin declared descendants have now. A terminal has been hung up with its root. */
  #isTalkedTo(): boolean {
    const { keepOnLeaderExit, terminal } = this.#settings
    return keepOnLeaderExit && !terminal && this.#state !== 'exited'
  }

  #onUsage(usage: RunUsage): void {
    this.#answerUsage?.(usage)
    this.#usage = undefined
    this.#answerUsage = undefined
  }

  /** Nothing of it exists. */
  #finish(exit: RunExit): void {
    this.#state = 'exited'
    this.#onUsage(NOTHING_USED)
    this.#settle(exit)
    if (exit.escaped.length > 0) this.#tell('escape', { escaped: exit.escaped })
    this.#tell('exited', { exit })
  }

  /**
   * A cancel that comes late is still told how it ended. For that the process itself is not needed: its streams, and whatever those who
   * listened to it hold on to, would stay in memory for a thousand runs.
   */
  #leaveTable(): void {
    const { runId, pid, sessionId, scopeKey, service, labels, wasCancelled } = this
    const exit = this.#end
    const cancel = () => exit
    this.#owner.runs.remove(this, { runId, pid, sessionId, scopeKey, service, labels, wasCancelled, cancel })
  }

  /** It was not started, and is not going to be. */
  #callOff(reason: TerminationReason): void {
    this.#postponed = false
    this.#ending = 'cancel'
    this.killed = true
    this.#leaveTable()
    this.#owner.registry.countUnstarted(reason)
    this.#finish(describeCalledOff(this.runId, reason))
    process.nextTick(() => {
      this.#onExit(null, null)
      this.#ends.end()
    })
  }

  #cancel(signal: number, graceMs: number, reason: TerminationReason): void {
    if (this.#postponed) {
      this.#callOff(reason)
      return
    }
    if (this.#native === undefined || this.#state === 'exited') return
    this.#state = 'exiting'
    // A keeper that cannot be told is dead; then the tree is being ended from outside already.
    this.#native.cancel(signal, graceMs, reason)
  }

  #tell<T extends RunEvent['type']>(type: T, details: Details<T>): void {
    this.#owner.events.tell(this, type, details)
  }

  #listenForAbort(): void {
    const { abort, killSignal, graceMs } = this.#settings
    if (!abort) return
    const onAbort = () => {
      if (this.#exited) return
      this.killed = true
      this.#cancel(killSignal, graceMs, 'manual-cancel')
      this.emit('error', abortError(abort.reason))
    }
    if (abort.aborted) {
      process.nextTick(onAbort)
    } else {
      abort.addEventListener('abort', onAbort, { once: true })
      this.#stopListeningForAbort = () => abort.removeEventListener('abort', onAbort)
    }
  }

  #replace(name: string, value: unknown): void {
    Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true })
  }
}

const NOTHING_USED: RunUsage = { processes: 0, cpuMs: 0, rssBytes: 0 }

function usageOf({ processes = 0, cpuMs = 0, rssBytes = 0 }: NativeEvent): RunUsage {
  return { processes, cpuMs, rssBytes }
}

Object.setPrototypeOf(OwnedProcess.prototype, ChildProcess.prototype)
