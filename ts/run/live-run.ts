// LiveRun: the run behind an OwnedProcess, from its start to the end of its tree.

import type {
  RootExit,
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
import { whenAborted } from '../util/abort.js'
import { abortError, errnoError } from '../util/errors.js'
import { endsByDefault, signalName } from '../util/signals.js'
import { monotonicMs, nextTick, setImmediate } from '../util/timers.js'
import { nameBadDirectory } from './bad-directory.js'
import type { BorrowedChannel } from './ipc.js'
import { KeptDescendants } from './kept-descendants.js'
import { OutputMeter } from './output-meter.js'
import { OwnedProcess } from './owned-process.js'
import { describeCancelledBeforeStart, describeExit, describeFailedStart, type Ending } from './run-exit.js'
import { RunPromises } from './run-promises.js'
import { remembered } from './run-table.js'
import { emitSignalError, signalRoot } from './signal-root.js'
import { labelsAsJson, type RunSettings } from './spawn-options.js'
import type { Pipes } from './stdio.js'
import { StdioLifecycle } from './stdio-lifecycle.js'
import { NOTHING_USED, UsageRequest, usageOf } from './usage-request.js'

export class LiveRun {
  readonly settings: RunSettings
  /** What callers see of this run. */
  readonly process: OwnedProcess
  readonly promises = new RunPromises()
  readonly stdio: StdioLifecycle
  readonly output: OutputMeter
  readonly descendants = new KeptDescendants(this)
  state: RunState = 'starting'
  native: NativeRun | undefined
  startedAt = 0
  /** The run waits for the end of earlier runs before it starts. */
  isPostponed = false
  /** The exit of the root process was reported, or the run could not be started. */
  hasRootExited = false
  /** What ended the tree. */
  ending: Ending | undefined
  readonly #context: SupervisorContext
  /** The native side reported the start. */
  #isRunning = false
  /** The bot read output before that report. */
  #hasEarlyOutput = false
  #usage: UsageRequest | undefined
  #stopListeningForAbort: (() => void) | undefined
  /** The root process exited while no caller, timeout or signal handler had ended the run. */
  #exitedByItself = false
  #startError: StartError | undefined

  constructor(settings: RunSettings, context: SupervisorContext) {
    this.settings = settings
    this.#context = context
    this.process = new OwnedProcess(this)
    this.stdio = new StdioLifecycle(this.process)
    this.output = new OutputMeter(outputReportInterval)
    this.output.setIdleTimeout(settings.idleTimeoutMs)
  }

  // ---- requests of callers ----------------------------------------------------------------------

  /** Terminates the tree. Does nothing if it is gone. */
  cancel(signal: number, graceMs: number, reason: TerminationReason): void {
    if (this.isPostponed) {
      this.#cancelBeforeStart(reason)
      return
    }
    if (this.native === undefined || this.state === 'exited') return
    this.state = 'exiting'
    // If the keeper does not get the request, it is dead, and the tree is being terminated already.
    this.native.cancel(signal, graceMs, reason)
  }

  /** Signals the root process, as `ChildProcess.kill` does. */
  kill(signal: number): boolean {
    if (this.isPostponed) {
      if (!endsByDefault(signal)) return false
      this.#cancelBeforeStart('manual-cancel')
      return true
    }
    return signalRoot(this, signal)
  }

  /** Changes labels and metadata, also in the registry. */
  update(labels: Readonly<Record<string, string>>, metadata: string | undefined): void {
    const { settings, state, process } = this
    settings.givenLabels = labels
    settings.labels = labelsAsJson(labels)
    settings.metadata = metadata
    if (process.pid === undefined || state === 'exited') return
    this.#context.registry.update(settings.runId, process.pid, labels, metadata)
  }

  usage(): Promise<RunUsage> {
    // If the keeper does not get the request, it has ended, and the tree with it.
    if (this.#usage === undefined && (this.state === 'exited' || this.native?.usage() !== 0))
      return Promise.resolve(NOTHING_USED)
    this.descendants.keepAliveAgain()
    this.#usage ??= new UsageRequest()
    return this.#usage.answered
  }

  /** Returns the result of the root process. Call it after its exit. */
  rootExit(): RootExit {
    const { exitCode, signalCode: signal } = this.process
    // After a failed start, `exitCode` is an error number, as in Node.
    return this.#startError ? { exitCode: null, signal, error: this.#startError } : { exitCode, signal }
  }

  // ---- for spawnOwned ---------------------------------------------------------------------------

  /** Notes the start time. Called right before the command is executed. */
  starting(): void {
    this.startedAt = monotonicMs()
  }

  /**
   * Attaches the bot's ends of the streams. A postponed run already has them: returns undefined.
   */
  attach(fds: readonly number[]): Pipes | undefined {
    return this.stdio.attach(fds, this.settings.terminal !== undefined, {
      closed: () => this.stdio.closeOne(),
      reading: (fd) => this.native?.reading(fd),
      lent: (fd) => this.native?.handOver(fd),
      closing: (fd) => this.native?.closing(fd),
      outputRead: () => this.#onOutput(),
    })
  }

  /** Prepares a run that starts later, unless a cancel comes first. */
  postpone(fds: readonly number[], channel: BorrowedChannel | undefined): void {
    this.isPostponed = true
    this.attach(fds)
    if (channel) this.stdio.attachChannel(channel)
    this.#context.runs.add(this.process)
    this.#listenForAbort()
  }

  /** Called when the command runs. */
  started(pid: number, native: NativeRun, channel: BorrowedChannel | undefined): void {
    this.native = native
    this.process.pid = pid
    this.state = 'running'
    nextTick(() => {
      this.#emitRun('spawn', { commandPreview: this.settings.preview })
      this.process.emit('spawn')
    })
    if (this.isPostponed) {
      this.isPostponed = false
      this.descendants.afterStart()
      this.stdio.reportReading()
      return
    }
    this.#context.runs.add(this.process)
    if (channel) this.stdio.attachChannel(channel)
    this.#listenForAbort()
  }

  /** Called when the command could not be started. Emits `error` on the next tick, then `close`. */
  failed(errno: number, channel: BorrowedChannel | undefined): void {
    if (channel && !this.isPostponed) this.stdio.attachChannel(channel)
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

  /**
   * Handles an event of the native side, one turn of the event loop later.
   *
   * The bot then reads what the command wrote before its exit before it gets `exit`. The end of
   * this turn is too early: one turn can deliver several events, and it does not know what was
   * written between the first and the last. The next turn polls the system again.
   */
  onNative(event: NativeEvent): void {
    this.stdio.afterPendingReads(() => this.#handle(event))
  }

  // ---- events -----------------------------------------------------------------------------------

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
        emitSignalError(this, event.errno ?? 0)
        break
      case 'extinct':
        if (event.end) this.#onExtinct(event.end)
        break
    }
  }

  /** The command could not be executed, and no process of it exists. */
  #onRefused(errno: number): void {
    const error = errnoError(errno, `spawn ${this.process.spawnfile}`)
    nameBadDirectory(error, this.settings)
    this.#onFailed(error, -errno)
  }

  /**
   * Emits `error`, and resolves `wait()` one turn of the event loop later.
   *
   * `error` before `wait()`, because `once(child, 'error')` of node:events takes a few microtasks
   * longer than `wait()`, and would lose a race against it.
   */
  #onFailed(error: NodeJS.ErrnoException, exitCode: number | null): void {
    if (this.state === 'exited') return
    const { process, settings, stdio } = this
    // Node adds these properties to errors of the operating system.
    if (error.errno !== undefined)
      Object.assign(error, { path: process.spawnfile, spawnargs: process.spawnargs.slice(1) })
    this.hasRootExited = true
    process.exitCode = exitCode
    if (this.native || this.isPostponed) this.#leaveTable()
    this.isPostponed = false
    this.native?.forget()
    this.#stopListeningForAbort?.()
    const exit = describeFailedStart(settings.runId, error)
    this.#startError = exit.error
    this.#finish(exit, (settle) => setImmediate(settle))
    stdio.closeStdin()
    this.promises.emitError(process, error)
    this.promises.settleRootExit(this.rootExit())
    stdio.afterExit()
    stdio.endStreams()
  }

  #onStarted(): void {
    this.#isRunning = true
    this.#emitRun('started', {})
    if (this.#hasEarlyOutput && this.output.isEventDue(monotonicMs())) this.#emitRun('output', {})
  }

  #onWarning({ deadline = 'overall', limitMs = 0, remainingMs = 0 }: NativeEvent): void {
    this.#emitRun('deadline-warning', { deadline, limitMs, remainingMs })
  }

  #onEnding({ ending, reason = 'lost' }: NativeEvent): void {
    this.state = 'exiting'
    // Node's `timeout` option sets `killed` too.
    if (ending === 'overall-timeout') this.process.killed = true
    this.#emitRun('exiting', { reason })
  }

  /** Called when the bot read output. Reports it at most once per interval. */
  #onOutput(): void {
    const now = monotonicMs()
    if (this.output.isReportDue(now)) this.native?.outputRead()
    // Output can arrive before the report of the start, and after the report of the end.
    if (!this.#isRunning) this.#hasEarlyOutput = true
    else if (this.state !== 'exited' && this.output.isEventDue(now)) this.#emitRun('output', {})
  }

  #onExit(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.hasRootExited) return
    const { process, stdio } = this
    const { onLeaderExit } = this.settings
    this.hasRootExited = true
    this.#exitedByItself = this.state === 'running'
    // With `onLeaderExit: 'keep'` the descendants continue.
    if (onLeaderExit === 'kill' && this.state !== 'exited') this.state = 'exiting'
    if (signal) process.signalCode = signal
    else process.exitCode = code
    this.#stopListeningForAbort?.()
    if (!this.#keepsStdinOpen()) stdio.closeStdin()
    if (onLeaderExit === 'keep' && this.#exitedByItself) this.descendants.afterRootExit()
    stdio.notifyChannel()
    this.promises.settleRootExit(this.rootExit())
    process.emit('exit', process.exitCode, process.signalCode)
    stdio.afterExit()
  }

  /**
   * Whether stdin stays open after the exit of the root process.
   *
   * The root process can be a wrapper, and its descendants then use its stdin. A terminal is hung
   * up when its root process exits.
   */
  #keepsStdinOpen(): boolean {
    const { onLeaderExit, isDropIn, terminal } = this.settings
    return onLeaderExit === 'keep' && !isDropIn && !terminal && this.state !== 'exited'
  }

  #onUsage(usage: RunUsage): void {
    this.#usage?.answer(usage)
    this.#usage = undefined
  }

  // ---- the end ----------------------------------------------------------------------------------

  #onExtinct(end: NativeEnd): void {
    this.ending = end.ending
    this.native?.forget()
    this.#leaveTable()
    const { runId } = this.settings
    const durationMs = Math.round(monotonicMs() - this.startedAt)
    const exitedByItself = this.#exitedByItself
    this.#finish(describeExit({ ...end, runId, exitedByItself, durationMs }))
    // The exit status of the root process is unknown if its keeper died first, or if it survived.
    // Report the exit anyway: the run is over.
    this.#onExit(null, null)
    this.stdio.closeStdin()
    this.stdio.end()
  }

  /** Cancels a postponed run: it never starts. */
  #cancelBeforeStart(reason: TerminationReason): void {
    this.isPostponed = false
    this.ending = 'cancel'
    this.process.killed = true
    this.#leaveTable()
    this.#context.registry.countUnstarted(reason)
    this.#finish(describeCancelledBeforeStart(this.settings.runId, reason))
    nextTick(() => {
      this.#onExit(null, null)
      this.stdio.end()
    })
  }

  /** Called when no process of the run exists. `when` decides when `wait()` resolves. */
  #finish(exit: RunExit, when: (settle: () => void) => void = (settle) => settle()): void {
    this.state = 'exited'
    this.#onUsage(NOTHING_USED)
    when(() => this.promises.settle(exit))
    this.#addToHistory(exit)
    if (exit.escaped.length > 0) this.#emitRun('escape', { escaped: exit.escaped })
    this.#emitRun('exited', { exit })
  }

  /** A command that was never executed is no run. */
  #addToHistory(exit: RunExit): void {
    const { settings, process } = this
    const { pid, labels } = process
    if (pid === undefined || exit.reason === 'spawn-error') return
    const about = { ...settings, pid, botPid: globalThis.process.pid, commandPreview: settings.preview }
    this.#context.history?.add([endedRun({ ...about, labels }, exit)])
  }

  #leaveTable(): void {
    this.#context.runs.remove(this.process, remembered(this.process))
  }

  #emitRun<T extends RunEvent['type']>(type: T, details: Details<T>): void {
    this.#context.events.emitRun(this.process, type, details)
  }

  #listenForAbort(): void {
    const { abort, killSignal, graceMs } = this.settings
    if (!abort) return
    this.#stopListeningForAbort = whenAborted(abort, () => {
      if (this.hasRootExited) return
      this.process.killed = true
      this.cancel(killSignal, graceMs, 'manual-cancel')
      this.promises.emitError(this.process, abortError(abort.reason))
    })
  }
}
