// OwnedProcess: a ChildProcess to its callers, a run to its owner.

import { AsyncResource } from 'node:async_hooks'
import { ChildProcess } from 'node:child_process'
import { EventEmitter } from 'node:events'
import type net from 'node:net'
import { constants } from 'node:os'
import type { CancelOptions, RunExit, RunState, TerminationReason } from '../index.js'
import { readCancelOptions } from './cancel-options.js'
import { abortError, codedError, errnoError } from './errors.js'
import { describeExit, describeFailedStart, type Ending } from './exit.js'
import type { BorrowedChannel } from './ipc.js'
import type { NativeEvent, NativeRun } from './native.js'
import type { RunSettings } from './options.js'
import type { RunTable } from './runs.js'
import { signalName, signalNumber } from './signals.js'
import { Pipes } from './stdio.js'

/**
 * The class is built on EventEmitter and then placed below ChildProcess (see the end of this file): `instanceof
 * ChildProcess` holds, and no libuv process handle is allocated that would never be used.
 */
export class OwnedProcess extends EventEmitter {
  readonly runId: string
  readonly sessionId: string | undefined
  readonly scopeKey: string | undefined
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
  #runs: RunTable
  #native: NativeRun | undefined
  #state: RunState = 'starting'
  #startedAt = 0
  #ending: Ending | undefined
  /** Undefined if the command failed before there could be any. */
  #pipes: Pipes | undefined
  #stdio: (net.Socket | null)[] | undefined
  /** What `close` waits for: the exit, every piped stream but stdin, the IPC channel. */
  #openEnds = 1
  #exited = false
  #channel: BorrowedChannel | undefined
  /** Listeners run in the context in which the run was started. */
  #context = new AsyncResource('OWNEDPROCESS')
  #stopListeningForAbort: (() => void) | undefined
  #end: Promise<RunExit>
  #settle!: (exit: RunExit) => void

  constructor(settings: RunSettings, runs: RunTable) {
    super()
    this.runId = settings.runId
    this.sessionId = settings.sessionId
    this.scopeKey = settings.scopeKey
    this.backendId = settings.backendId
    this.labels = settings.labels
    this.spawnfile = settings.file
    this.spawnargs = settings.argv
    this.#settings = settings
    this.#runs = runs
    this.#end = new Promise((resolve) => {
      this.#settle = resolve
    })
  }

  get stdin(): net.Socket | null | undefined {
    return this.#pipes?.stream(0)
  }

  get stdout(): net.Socket | null | undefined {
    return this.#pipes?.stream(1)
  }

  get stderr(): net.Socket | null | undefined {
    return this.#pipes?.stream(2)
  }

  get stdio(): (net.Socket | null)[] | undefined {
    this.#stdio ??= this.#pipes?.all()
    return this.#stdio
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

  wait(): Promise<RunExit> {
    return this.#end
  }

  async cancel(options?: CancelOptions): Promise<RunExit> {
    const { signal, graceMs, reason } = readCancelOptions(options)
    this.#cancel(signal, graceMs ?? this.#settings.graceMs, reason)
    return this.#end
  }

  kill(signal?: NodeJS.Signals | number): boolean {
    const number = signal === 0 ? 0 : signalNumber(signal === undefined ? 'SIGTERM' : signal)
    if (this.#exited || this.#native === undefined) return false
    const errno = this.#native.signal(number)
    // The keeper has ended, so the root has too, but nobody here has heard of it yet: like a zombie in Node.
    if (errno !== 0 && errno !== constants.errno.EPIPE && errno !== constants.errno.ECONNRESET) return false
    this.killed = true
    return true
  }

  ref(): void {
    this.#native?.keepAlive(true)
  }

  unref(): void {
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

  /** Our ends of the command's streams. */
  attach(fds: readonly number[]): Pipes {
    this.#pipes = new Pipes(fds, this.#context, () => this.#closeOne())
    this.#openEnds += this.#pipes.count
    return this.#pipes
  }

  /** The command runs. */
  started(pid: number, native: NativeRun, channel: BorrowedChannel | undefined): void {
    this.#native = native
    this.pid = pid
    this.#state = 'running'
    this.#startedAt = performance.now()
    this.#runs.add(this)
    if (channel) this.#attachChannel(channel)
    process.nextTick(() => this.emit('spawn'))
    this.#listenForAbort()
  }

  /** The command could not be started: `error` follows on the next tick, and then `close`. */
  failed(errno: number, channel: BorrowedChannel | undefined): void {
    if (channel) this.#attachChannel(channel)
    process.nextTick(() => this.#onRefused(errno))
  }

  /**
   * What the native side tells. An exit is passed on after everything that was readable in the same turn of the event
   * loop: what the command wrote before it exited is then seen before its exit.
   */
  onNative(event: NativeEvent): void {
    this.#context.runInAsyncScope(() => setImmediate(() => this.#handle(event)))
  }

  // ---- what happens ---------------------------------------------------------------------------------------------------

  #handle(event: NativeEvent): void {
    switch (event.kind) {
      case 'refused':
        this.#onRefused(event.errno ?? 0)
        break
      case 'ending':
        this.#onEnding(event.ending)
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
    this.#exited = true
    this.#state = 'exited'
    this.exitCode = -errno
    if (this.#native) this.#runs.remove(this)
    this.#native?.forget()
    this.#stopListeningForAbort?.()
    this.#settle(describeFailedStart(this.runId, error.message))
    this.#pipes?.closeStdin()
    this.emit('error', error)
    this.#afterExit()
    this.#pipes?.end()
  }

  #onEnding(ending: Ending | undefined): void {
    this.#state = 'exiting'
    // Node's `timeout` option kills, and says so.
    if (ending === 'overall-timeout') this.killed = true
  }

  #onExit(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#exited) return
    this.#exited = true
    // Declared descendants are no end.
    if (!this.#settings.keepOnLeaderExit) this.#state = 'exiting'
    if (signal) this.signalCode = signal
    else this.exitCode = code
    this.#stopListeningForAbort?.()
    this.#pipes?.closeStdin()
    this.#channel?.exited(this.exitCode, this.signalCode)
    this.emit('exit', this.exitCode, this.signalCode)
    this.#afterExit()
  }

  #afterExit(): void {
    // On the next tick, so that somebody who starts to read when the process has exited gets everything.
    process.nextTick(() => this.#pipes?.drain())
    this.#closeOne()
  }

  /** ESRCH is an exit that we have not heard of yet. */
  #onSignalFailed(errno: number): void {
    const error = errnoError(errno, 'kill')
    if (error.code !== 'ESRCH') this.emit('error', error)
  }

  #onExtinct(event: NativeEvent): void {
    this.#ending = event.ending ?? 'lost'
    this.#state = 'exited'
    this.#native?.forget()
    this.#runs.remove(this)
    this.#settle(
      describeExit({
        runId: this.runId,
        ending: this.#ending,
        cancelReason: event.reason,
        exitCode: this.exitCode,
        signal: this.signalCode,
        durationMs: Math.round(performance.now() - this.#startedAt),
        timeoutMs: this.#settings.timeoutMs,
        escaped: event.escaped ?? [],
        survivors: event.survivors ?? [],
      }),
    )
    // Nobody could tell how the root ended: its keeper died first, or it survived. What is known is that it is over.
    this.#onExit(null, null)
    this.#state = 'exited'
    this.#pipes?.end()
    this.#channel?.end()
  }

  #cancel(signal: number, graceMs: number, reason: TerminationReason): void {
    if (this.#native === undefined || this.#state === 'exited') return
    this.#state = 'exiting'
    // A keeper that cannot be told is dead; then the tree is being ended from outside already.
    this.#native.cancel(signal, graceMs, reason)
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

  // ---- streams ---------------------------------------------------------------------------------------------------------

  #replace(name: string, value: unknown): void {
    Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true })
  }

  #closeOne(): void {
    if (--this.#openEnds === 0) this.emit('close', this.exitCode, this.signalCode)
  }

  /** The channel is a ChildProcess of its own (see ipc.ts); to our callers it is this one. */
  #attachChannel(borrowed: BorrowedChannel): void {
    const { channel } = borrowed
    this.#channel = borrowed
    this.#openEnds++
    Object.defineProperties(this, {
      connected: { get: () => channel.connected, enumerable: true, configurable: true },
      channel: { get: () => channel.channel, enumerable: true, configurable: true },
    })
    Object.assign(this, {
      send: channel.send.bind(channel),
      disconnect: channel.disconnect.bind(channel),
    })
    channel.removeAllListeners('error')
    for (const event of ['internalMessage', 'disconnect', 'error']) {
      channel.on(event, (...args) => this.emit(event, ...args))
    }
    // Node keeps messages until somebody listens. So we listen only while somebody listens to us.
    const forward = (...args: unknown[]) => this.emit('message', ...args)
    this.on('newListener', (event) => {
      if (event === 'message' && channel.listenerCount('message') === 0) channel.on('message', forward)
    })
    this.on('removeListener', (event) => {
      if (event === 'message' && this.listenerCount('message') === 0) channel.off('message', forward)
    })
    channel.once('close', () => this.#closeOne())
  }
}

Object.setPrototypeOf(OwnedProcess.prototype, ChildProcess.prototype)
