// OwnedProcess: the ChildProcess that spawnOwned returns, and the run behind it.

import { ChildProcess } from 'node:child_process'
import { EventEmitter, errorMonitor } from 'node:events'
import type net from 'node:net'
import type {
  CancelOptions,
  DeadlineChange,
  LinesOptions,
  RootExit,
  RunChanges,
  RunEvent,
  RunExit,
  RunState,
  RunUsage,
  StartError,
  TerminationReason,
} from '../../index.js'
import { type NativeEnd, type NativeEvent, type NativeRun, outputReportInterval } from '../native/addon.js'
import { endedRun } from '../registry/ended-run.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import type { Details } from '../supervisor/supervisor-events.js'
import { abortError, codedError, errnoError, invalidType } from '../util/errors.js'
import { delivered, endsByDefault, killSignalNumber, signalName, signalNumber } from '../util/signals.js'
import { monotonicMs, nextTick, setImmediate } from '../util/timers.js'
import { duration } from '../util/validation.js'
import { isWindows } from '../util/windows.js'
import { nameBadDirectory } from './bad-directory.js'
import { BotDeadlines, type DeadlineKind } from './bot-deadlines.js'
import { readCancelOptions } from './cancel-options.js'
import type { BorrowedChannel } from './ipc.js'
import { readLines } from './lines.js'
import { OutputMeter } from './output-meter.js'
import { checkSize } from './pty-options.js'
import { readChanges, readDeadlineChange } from './run-changes.js'
import { describeCancelledBeforeStart, describeExit, describeFailedStart, type Ending } from './run-exit.js'
import { labelsAsJson, type RunSettings } from './spawn-options.js'
import type { Pipes } from './stdio.js'
import { StdioLifecycle } from './stdio-lifecycle.js'

/**
 * The class extends EventEmitter, and the end of this file puts it below ChildProcess.
 *
 * So `instanceof ChildProcess` is true, and the constructor allocates no libuv process handle,
 * which would never be used.
 */
export class OwnedProcess extends EventEmitter {
  static override readonly name = 'OwnedProcess'

  readonly runId: string
  readonly sessionId: string | undefined
  readonly scopeKey: string | undefined
  readonly service: string | undefined
  readonly backendId: string | undefined
  labels: Readonly<Record<string, string>>

  pid: number | undefined
  connected = false
  killed = false
  exitCode: number | null = null
  signalCode: NodeJS.Signals | null = null
  spawnfile: string
  spawnargs: readonly unknown[]

  #settings: RunSettings
  #context: SupervisorContext
  #native: NativeRun | undefined
  #state: RunState = 'starting'
  #startedAt = 0
  #ending: Ending | undefined
  /** The run waits for the end of earlier runs before it starts. */
  #postponed = false
  /** The native side reported the start. */
  #isRunning = false
  /** The bot read output before that report. */
  #hasEarlyOutput = false
  #output: OutputMeter
  readonly #hasNativeIdleTimeout: boolean
  /** The pending request. Callers share it. */
  #usage: Promise<RunUsage> | undefined
  #answerUsage: ((usage: RunUsage) => void) | undefined
  #keepsAlive = true
  #lifecycle = new StdioLifecycle(this)
  #exited = false
  #stopListeningForAbort: (() => void) | undefined
  #end: Promise<RunExit>
  #settle!: (exit: RunExit) => void
  /** Created on demand. */
  #rootExit: Promise<RootExit> | undefined
  #settleRootExit: ((exit: RootExit) => void) | undefined
  /** A caller gets errors of the run from a promise, and needs no listener of `error`. */
  #isAwaited = false
  /** The root process exited while no caller, timeout or signal handler had ended the run. */
  #exitedByItself = false
  #startError: StartError | undefined
  /** Only if a caller changed the timeouts after the start. */
  #deadlines: BotDeadlines | undefined
  /** A caller waits for an event of the descendants that outlived the root process. */
  #isNeeded = false
  /** The timeout that the bot measured, and that ended the run. */
  #reached: { ending: 'overall-timeout' | 'no-output-timeout'; limitMs: number } | undefined
  /** The last signal of a caller to the root process that ends a process by default. */
  #killSignal: NodeJS.Signals | undefined

  constructor(settings: RunSettings, context: SupervisorContext) {
    super()
    this.runId = settings.runId
    this.sessionId = settings.sessionId
    this.scopeKey = settings.scopeKey
    this.service = settings.service
    this.backendId = settings.backendId
    this.labels = settings.givenLabels
    this.spawnfile = settings.file
    this.spawnargs = settings.spawnargs
    this.#settings = settings
    this.#context = context
    this.#hasNativeIdleTimeout = settings.idleTimeoutMs > 0
    this.#output = new OutputMeter(
      settings.idleTimeoutMs > 0 ? outputReportInterval(settings.idleTimeoutMs) : undefined,
    )
    this.#end = new Promise((resolve) => {
      this.#settle = resolve
    })
  }

  get stdin(): net.Socket | null | undefined {
    return this.#lifecycle.stream(0)
  }

  get stdout(): net.Socket | null | undefined {
    return this.#lifecycle.stream(1)
  }

  get stderr(): net.Socket | null | undefined {
    return this.#lifecycle.stream(2)
  }

  get stdio(): (net.Socket | null)[] | undefined {
    return this.#lifecycle.all()
  }

  // In Node these are plain properties, and some libraries replace them.
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

  /** Whether a cancel ended the run. False if the run ended before the cancel reached it. */
  get wasCancelled(): boolean {
    return this.#ending === 'cancel'
  }

  /** Whether the run outlives its bot. A run that is not started yet does not. */
  get isKept(): boolean {
    return this.#settings.onOwnerExit === 'keep' && !this.#postponed
  }

  wait(): Promise<RunExit> {
    this.#isAwaited = true
    this.#keepAliveAgain()
    return this.#end
  }

  /** The end of the run, for this package. Unlike `wait`, it does not replace a listener of `error`. */
  get end(): Promise<RunExit> {
    return this.#end
  }

  get exited(): Promise<RootExit> {
    this.#isAwaited = true
    this.#rootExit ??= new Promise((resolve) => {
      this.#settleRootExit = resolve
      if (this.#exited) this.#reportRootExit()
    })
    return this.#rootExit
  }

  lines(options?: LinesOptions): AsyncIterable<string> {
    const lines = readLines(this, options)
    this.#isAwaited = true
    return lines
  }

  async cancel(options?: CancelOptions): Promise<RunExit> {
    const { signal, graceMs, reason } = readCancelOptions(options)
    this.#keepAliveAgain()
    this.#cancel(signal, graceMs ?? this.#settings.graceMs, reason)
    return this.#end
  }

  kill(signal?: NodeJS.Signals | number): boolean {
    const number = signal === 0 ? 0 : delivered(signalNumber(signal === undefined ? 'SIGTERM' : signal))
    if (this.#postponed) {
      if (!endsByDefault(number)) return false
      this.#cancelBeforeStart('manual-cancel')
      return true
    }
    if (this.#exited || this.#native === undefined) return false
    const errno = this.#native.signal(number)
    if (errno !== 0 && !this.#hasKeeperEnded(errno)) return false
    this.killed = true
    if (endsByDefault(number)) this.#killSignal = signalName(number)
    return true
  }

  extendDeadline(ms: number): boolean {
    const more = duration(ms, 'ms')
    if (more === undefined) throw invalidType('ms', 'of type number', ms)
    if (this.#settings.timeoutMs === 0 && this.#settings.idleTimeoutMs === 0) {
      throw codedError(
        Error,
        'ERR_OWNED_NO_DEADLINE',
        `Run "${this.runId}" has no deadline to extend. Start it with options.timeoutMs or options.noOutputTimeoutMs.`,
      )
    }
    if (this.#postponed) {
      if (this.#settings.timeoutMs > 0) this.#settings.timeoutMs += more
      return true
    }
    if (this.#deadlines && this.#state === 'running') {
      this.#deadlines.extend(more)
      return true
    }
    return this.#state === 'running' && this.#native?.extend(more) === 0
  }

  setDeadline(change: DeadlineChange): boolean {
    const { timeoutMs, noOutputTimeoutMs } = readDeadlineChange(change, this)
    if (this.#state !== 'running' && !this.#postponed) return false
    if (!this.#postponed) this.#measureTimeouts()
    if (timeoutMs !== undefined) {
      this.#settings.timeoutMs = timeoutMs
      this.#deadlines?.set('overall', timeoutMs)
    }
    if (noOutputTimeoutMs !== undefined) {
      this.#settings.idleTimeoutMs = noOutputTimeoutMs
      this.#deadlines?.set('no-output', noOutputTimeoutMs)
    }
    return true
  }

  /**
   * Lets the bot measure the timeouts from now on, instead of the native side.
   *
   * The native side can only extend its timeouts. So they are extended beyond any run.
   */
  #measureTimeouts(): void {
    if (this.#deadlines) return
    const { timeoutMs, idleTimeoutMs } = this.#settings
    this.#deadlines = new BotDeadlines({
      warn: (deadline, limitMs, remainingMs) => this.#onWarning({ deadline, limitMs, remainingMs }),
      reached: (kind, limitMs) => this.#onDeadline(kind, limitMs),
      hasUnreadOutput: () => [1, 2].some((fd) => this.#lifecycle.hasUnread(fd)),
    })
    this.#deadlines.set('overall', timeoutMs, this.#startedAt)
    this.#deadlines.set('no-output', idleTimeoutMs)
    if (timeoutMs > 0 || idleTimeoutMs > 0) this.#native?.extend(Number.MAX_SAFE_INTEGER)
  }

  #onDeadline(kind: DeadlineKind, limitMs: number): void {
    // The first cause is the reason: a run that is being ended has one.
    if (this.#state === 'exiting' || this.#state === 'exited') return
    const { timeoutSignal, graceMs } = this.#settings
    const isOverall = kind === 'overall'
    this.#reached = { ending: isOverall ? 'overall-timeout' : 'no-output-timeout', limitMs }
    const signal = isOverall ? timeoutSignal : killSignalNumber(undefined)
    this.#cancel(signal, graceMs, this.#reached.ending)
  }

  update(changes: RunChanges): void {
    const { labels, metadata } = readChanges(changes, this.labels, this.#settings.metadata)
    this.labels = labels
    this.#settings.givenLabels = labels
    this.#settings.labels = labelsAsJson(labels)
    this.#settings.metadata = metadata
    if (this.pid === undefined || this.#state === 'exited') return
    this.#context.registry.update(this.runId, this.pid, labels, metadata)
  }

  get metadata(): unknown {
    const { metadata } = this.#settings
    return metadata === undefined ? undefined : JSON.parse(metadata)
  }

  resize(cols: number, rows: number): void {
    checkSize(cols, 'cols')
    checkSize(rows, 'rows')
    const { terminal } = this.#settings
    if (!terminal) {
      throw codedError(
        Error,
        'ERR_OWNED_NO_TERMINAL',
        `Run "${this.runId}" has no terminal to resize. Start it with options.pty.`,
      )
    }
    if (this.#postponed) Object.assign(terminal, { cols, rows })
    else if (this.#exited || this.#native?.resize(cols, rows) !== 0) {
      throw codedError(
        Error,
        'ERR_OWNED_TERMINAL_GONE',
        `The terminal of run "${this.runId}" cannot be resized, because it is closed. ` +
          "Resize it before 'exit', or check exitCode and signalCode first.",
      )
    }
  }

  /** The name of the foreground process of the terminal, if any. For `spawn-owned/node-pty`. */
  get foreground(): string | undefined {
    return this.#native?.foreground()
  }

  usage(): Promise<RunUsage> {
    // If the keeper does not get the request, it has ended, and the tree with it.
    if (this.#usage === undefined && (this.#state === 'exited' || this.#native?.usage() !== 0))
      return Promise.resolve(NOTHING_USED)
    this.#keepAliveAgain()
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

  /**
   * Throws. Node's undocumented method starts a ChildProcess; spawnOwned has already started this
   * one.
   */
  spawn(): never {
    throw codedError(
      Error,
      'ERR_OWNED_ALREADY_STARTED',
      'spawnOwned has already started this run. Call spawnOwned again for another run.',
    )
  }

  [Symbol.dispose](): void {
    if (!this.killed) this.kill()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cancel()
  }

  // ---- for spawnOwned only ----------------------------------------------------------------------

  /** Notes the start time. Called right before the command is executed. */
  starting(): void {
    this.#startedAt = monotonicMs()
  }

  /**
   * Attaches the bot's ends of the streams. A postponed run already has them: returns undefined.
   */
  attach(fds: readonly number[]): Pipes | undefined {
    return this.#lifecycle.attach(fds, this.#settings.terminal !== undefined, {
      closed: () => this.#lifecycle.closeOne(),
      reading: (fd) => this.#native?.reading(fd),
      lent: (fd) => this.#native?.handOver(fd),
      closing: (fd) => this.#native?.closing(fd),
      outputRead: () => this.#onOutput(),
    })
  }

  /** Prepares a run that starts later, unless a cancel comes first. */
  postpone(fds: readonly number[], channel: BorrowedChannel | undefined): void {
    this.#postponed = true
    this.attach(fds)
    if (channel) this.#lifecycle.attachChannel(channel)
    this.#context.runs.add(this)
    this.#listenForAbort()
  }

  /** Called when the command runs. */
  started(pid: number, native: NativeRun, channel: BorrowedChannel | undefined): void {
    this.#native = native
    this.pid = pid
    this.#state = 'running'
    nextTick(() => {
      this.#emitRun('spawn', { commandPreview: this.#settings.preview })
      this.emit('spawn')
    })
    if (this.#postponed) {
      this.#postponed = false
      if (!this.#keepsAlive) native.keepAlive(false)
      this.#lifecycle.reportReading()
      return
    }
    this.#context.runs.add(this)
    if (channel) this.#lifecycle.attachChannel(channel)
    this.#listenForAbort()
  }

  /** Called when the command could not be started. Emits `error` on the next tick, then `close`. */
  failed(errno: number, channel: BorrowedChannel | undefined): void {
    if (channel && !this.#postponed) this.#lifecycle.attachChannel(channel)
    nextTick(() => this.#onRefused(errno))
  }

  /**
   * Called when a postponed run cannot be started.
   *
   * Emits `error` on the next tick: an error of the bot's listener must not reject a promise here.
   */
  failedToStart(error: NodeJS.ErrnoException): void {
    // The native side counts errors of the operating system itself.
    if (error.errno === undefined) this.#context.registry.countUnstarted('spawn-error')
    nextTick(() => this.#onFailed(error, error.errno ?? null))
  }

  /** Returns the bot's ends of the outputs that are still open. */
  openOutputs(): number[] {
    return this.#lifecycle.openOutputs()
  }

  /**
   * Handles an event of the native side, one turn of the event loop later.
   *
   * The bot then reads what the command wrote before its exit before it gets `exit`. The end of
   * this turn is too early: one turn can deliver several events, and it does not know what was
   * written between the first and the last. The next turn polls the system again.
   */
  onNative(event: NativeEvent): void {
    this.#lifecycle.afterPendingReads(() => this.#handle(event))
  }

  // ---- events of the native side ----------------------------------------------------------------

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
        if (event.end) this.#onExtinct(event.end)
        break
    }
  }

  /** The command could not be executed, and no process of it exists. */
  #onRefused(errno: number): void {
    const error = errnoError(errno, `spawn ${this.spawnfile}`)
    nameBadDirectory(error, this.#settings)
    this.#onFailed(error, -errno)
  }

  /**
   * Emits `error`, and resolves `wait()` one turn of the event loop later.
   *
   * `error` before `wait()`, because `once(child, 'error')` of node:events takes a few microtasks
   * longer than `wait()`, and would lose a race against it.
   */
  #onFailed(error: NodeJS.ErrnoException, exitCode: number | null): void {
    if (this.#state === 'exited') return
    // Node adds these properties to errors of the operating system.
    if (error.errno !== undefined)
      Object.assign(error, { path: this.spawnfile, spawnargs: this.spawnargs.slice(1) })
    this.#exited = true
    this.exitCode = exitCode
    if (this.#native || this.#postponed) this.#leaveTable()
    this.#postponed = false
    this.#native?.forget()
    this.#stopListeningForAbort?.()
    const exit = describeFailedStart(this.runId, error)
    this.#startError = exit.error
    this.#finish(exit, (settle) => setImmediate(settle))
    this.#lifecycle.closeStdin()
    this.#emitError(error)
    this.#reportRootExit()
    this.#lifecycle.afterExit()
    this.#lifecycle.endStreams()
  }

  #onStarted(): void {
    this.#isRunning = true
    this.#emitRun('started', {})
    if (this.#hasEarlyOutput && this.#output.isEventDue(monotonicMs())) this.#emitRun('output', {})
  }

  #onWarning({ deadline = 'overall', limitMs = 0, remainingMs = 0 }: Partial<NativeEvent>): void {
    this.#emitRun('deadline-warning', { deadline, limitMs, remainingMs })
  }

  #onEnding({ ending, reason = 'lost' }: NativeEvent): void {
    this.#state = 'exiting'
    // Node's `timeout` option sets `killed` too.
    if (ending === 'overall-timeout' || this.#reached?.ending === 'overall-timeout') this.killed = true
    this.#emitRun('exiting', { reason })
  }

  /** Called when the bot read output. Reports it at most once per interval. */
  #onOutput(): void {
    const now = monotonicMs()
    if (this.#output.isReportDue(now)) this.#native?.outputRead()
    this.#deadlines?.output()
    // Output restarts the idle timeout of the native side. The bot measures it now.
    if (this.#deadlines && this.#hasNativeIdleTimeout) this.#native?.extend(Number.MAX_SAFE_INTEGER)
    // Output can arrive before the report of the start, and after the report of the end.
    if (!this.#isRunning) this.#hasEarlyOutput = true
    else if (this.#state !== 'exited' && this.#output.isEventDue(now)) this.#emitRun('output', {})
  }

  #onExit(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#exited) return
    this.#exited = true
    this.#exitedByItself = this.#state === 'running'
    // With `onLeaderExit: 'keep'` the descendants continue.
    if (this.#settings.onLeaderExit === 'kill' && this.#state !== 'exited') this.#state = 'exiting'
    if (signal) this.signalCode = signal
    else this.exitCode = code
    this.#stopListeningForAbort?.()
    if (!this.#keepsStdinOpen()) this.#lifecycle.closeStdin()
    if (this.#settings.onLeaderExit === 'keep' && this.#exitedByItself) this.#onKeptDescendants()
    this.#lifecycle.notifyChannel()
    this.#reportRootExit()
    this.emit('exit', this.exitCode, this.signalCode)
    this.#lifecycle.afterExit()
  }

  /** Called when the root process has exited, and its descendants may stay. */
  #onKeptDescendants(): void {
    const { isDropIn, graceMs, endsTimeoutWithRoot } = this.#settings
    // The root process did not exit by itself: a kill of it ends the tree. Other signals that it
    // handled, such as SIGUSR1, did not ask it to exit.
    if (this.#killSignal && (this.signalCode || ASKS_TO_EXIT.has(this.#killSignal)))
      this.#native?.cancel(killSignalNumber(undefined), graceMs, this.signalCode ? 'signal' : 'exit')
    // Node's timeout is one of the root process.
    if (isDropIn && endsTimeoutWithRoot) this.#native?.extend(Number.MAX_SAFE_INTEGER)
    // In Node, only the root process keeps the bot alive. A daemon that it left must not.
    // Until `close`, its open streams do.
    if (!isDropIn) return
    this.once('close', () => {
      if (!this.#isAwaited && !this.#isNeeded) this.#native?.keepAlive(false)
    })
  }

  /** Keeps the bot alive for a caller that waits for an event of the kept descendants. */
  #keepAliveAgain(): void {
    if (!this.#settings.isDropIn || !this.#exited || !this.#keepsAlive) return
    this.#isNeeded = true
    this.#native?.keepAlive(true)
  }

  #reportRootExit(): void {
    const { signalCode: signal } = this
    // After a failed start, `exitCode` is an error number, as in Node.
    this.#settleRootExit?.(
      this.#startError
        ? { exitCode: null, signal, error: this.#startError }
        : { exitCode: this.exitCode, signal },
    )
  }

  /**
   * Emits `error`, unless that would throw although a caller gets the error from a promise.
   *
   * Without a listener, `emit('error')` throws, and an exception here ends the bot.
   */
  #emitError(error: Error): void {
    if (this.#isAwaited && this.listenerCount('error') === 0) this.emit(errorMonitor, error)
    else this.emit('error', error)
  }

  /**
   * Whether a signal could not be sent because the keeper has ended.
   *
   * Throws if this system does not have the signal, as Node does.
   */
  #hasKeeperEnded(errno: number): boolean {
    const error = errnoError(errno, 'kill')
    if (error.code === 'EINVAL' || error.code === 'ENOSYS') throw error
    // The keeper has ended, so the root process has too. Its exit is not reported yet. In Node, a
    // signal to a zombie succeeds as well.
    if (error.code === 'EPIPE' || error.code === 'ECONNRESET') return true
    // On Windows the error comes from the process. On Unix it comes from the socket to the keeper.
    if (isWindows) this.#onSignalFailed(errno)
    return false
  }

  /** Emits `error`, except for ESRCH: the process has exited, and its exit is not reported yet. */
  #onSignalFailed(errno: number): void {
    const error = errnoError(errno, 'kill')
    if (error.code !== 'ESRCH') this.#emitError(error)
  }

  #onExtinct(end: NativeEnd): void {
    const { ending, limitMs } = (end.ending === 'cancel' ? this.#reached : undefined) ?? end
    this.#ending = ending
    this.#deadlines?.stop()
    this.#native?.forget()
    this.#leaveTable()
    const durationMs = Math.round(monotonicMs() - this.#startedAt)
    const exitedByItself = this.#exitedByItself
    this.#finish(describeExit({ ...end, ending, limitMs, runId: this.runId, exitedByItself, durationMs }))
    // The exit status of the root process is unknown if its keeper died first, or if it survived.
    // Report the exit anyway: the run is over.
    this.#onExit(null, null)
    this.#lifecycle.closeStdin()
    this.#lifecycle.end()
  }

  /**
   * Whether stdin stays open after the exit of the root process.
   *
   * The root process can be a wrapper, and its descendants then use its stdin. A terminal is hung
   * up when its root process exits.
   */
  #keepsStdinOpen(): boolean {
    const { onLeaderExit, isDropIn, terminal } = this.#settings
    return onLeaderExit === 'keep' && !isDropIn && !terminal && this.#state !== 'exited'
  }

  #onUsage(usage: RunUsage): void {
    this.#answerUsage?.(usage)
    this.#usage = undefined
    this.#answerUsage = undefined
  }

  /** Called when no process of the run exists. `when` decides when `wait()` resolves. */
  #finish(exit: RunExit, when: (settle: () => void) => void = (settle) => settle()): void {
    this.#state = 'exited'
    this.#onUsage(NOTHING_USED)
    when(() => this.#settle(exit))
    this.#addToHistory(exit)
    if (exit.escaped.length > 0) this.#emitRun('escape', { escaped: exit.escaped })
    this.#emitRun('exited', { exit })
  }

  /** A command that was never executed is no run. */
  #addToHistory(exit: RunExit): void {
    const { pid } = this
    if (pid === undefined || exit.reason === 'spawn-error') return
    const about = { ...this.#settings, pid, botPid: process.pid, commandPreview: this.#settings.preview }
    this.#context.history?.add([endedRun({ ...about, labels: this.labels }, exit)])
  }

  /**
   * Replaces this object in the table of runs by a small one, which answers a late cancel.
   *
   * The table remembers a thousand runs. This object would keep their streams, and all that their
   * listeners refer to, in memory.
   */
  #leaveTable(): void {
    const { runId, pid, sessionId, scopeKey, service, labels, wasCancelled } = this
    const exit = this.#end
    const cancel = () => exit
    this.#context.runs.remove(this, {
      runId,
      pid,
      sessionId,
      scopeKey,
      service,
      labels,
      wasCancelled,
      cancel,
    })
  }

  /** Cancels a postponed run: it never starts. */
  #cancelBeforeStart(reason: TerminationReason): void {
    this.#postponed = false
    this.#ending = 'cancel'
    this.killed = true
    this.#leaveTable()
    this.#context.registry.countUnstarted(reason)
    this.#finish(describeCancelledBeforeStart(this.runId, reason))
    nextTick(() => {
      this.#onExit(null, null)
      this.#lifecycle.end()
    })
  }

  #cancel(signal: number, graceMs: number, reason: TerminationReason): void {
    if (this.#postponed) {
      this.#cancelBeforeStart(reason)
      return
    }
    if (this.#native === undefined || this.#state === 'exited') return
    this.#state = 'exiting'
    // If the keeper does not get the request, it is dead, and the tree is being terminated already.
    this.#native.cancel(signal, graceMs, reason)
  }

  #emitRun<T extends RunEvent['type']>(type: T, details: Details<T>): void {
    this.#context.events.emitRun(this, type, details)
  }

  #listenForAbort(): void {
    const { abort, killSignal, graceMs } = this.#settings
    if (!abort) return
    const onAbort = () => {
      if (this.#exited) return
      this.killed = true
      this.#cancel(killSignal, graceMs, 'manual-cancel')
      this.#emitError(abortError(abort.reason))
    }
    if (abort.aborted) {
      nextTick(onAbort)
    } else {
      abort.addEventListener('abort', onAbort, { once: true })
      this.#stopListeningForAbort = () => abort.removeEventListener('abort', onAbort)
    }
  }

  #replace(name: string, value: unknown): void {
    Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true })
  }
}

const ASKS_TO_EXIT: ReadonlySet<NodeJS.Signals> = new Set(['SIGTERM', 'SIGINT', 'SIGQUIT', 'SIGKILL'])

const NOTHING_USED: RunUsage = { processes: 0, cpuMs: 0, rssBytes: 0 }

function usageOf({ processes = 0, cpuMs = 0, rssBytes = 0 }: NativeEvent): RunUsage {
  return { processes, cpuMs, rssBytes }
}

Object.setPrototypeOf(OwnedProcess.prototype, ChildProcess.prototype)
