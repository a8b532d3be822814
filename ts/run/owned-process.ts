// OwnedProcess: the ChildProcess that spawnOwned returns. The run behind it is a LiveRun.

import { ChildProcess } from 'node:child_process'
import { EventEmitter } from 'node:events'
import type net from 'node:net'
import type {
  CancelOptions,
  DeadlineChange,
  LinesOptions,
  RootExit,
  RunChanges,
  RunExit,
  RunState,
  RunUsage,
} from '../../index.js'
import { codedError } from '../util/errors.js'
import { delivered, signalNumber } from '../util/signals.js'
import { readCancelOptions } from './cancel-options.js'
import { readLines } from './lines.js'
import type { LiveRun } from './live-run.js'
import { resizeTerminal } from './pty-options.js'
import { readChanges } from './run-changes.js'
import { extendDeadline, setDeadline } from './run-deadlines.js'

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

  readonly #run: LiveRun

  constructor(run: LiveRun) {
    super()
    const { settings } = run
    this.runId = settings.runId
    this.sessionId = settings.sessionId
    this.scopeKey = settings.scopeKey
    this.service = settings.service
    this.backendId = settings.backendId
    this.labels = settings.givenLabels
    this.spawnfile = settings.file
    this.spawnargs = settings.spawnargs
    this.#run = run
  }

  get stdin(): net.Socket | null | undefined {
    return this.#run.stdio.stream(0)
  }

  get stdout(): net.Socket | null | undefined {
    return this.#run.stdio.stream(1)
  }

  get stderr(): net.Socket | null | undefined {
    return this.#run.stdio.stream(2)
  }

  get stdio(): (net.Socket | null)[] | undefined {
    return this.#run.stdio.all()
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
    return this.#run.state
  }

  /** Whether a cancel ended the run. False if the run ended before the cancel reached it. */
  get wasCancelled(): boolean {
    return this.#run.ending === 'cancel'
  }

  /** Whether the run outlives its bot. A run that is not started yet does not. */
  get isKept(): boolean {
    return this.#run.settings.onOwnerExit === 'keep' && !this.#run.isPostponed
  }

  wait(): Promise<RunExit> {
    const { promises, descendants } = this.#run
    promises.isAwaited = true
    descendants.keepAliveAgain()
    return promises.end
  }

  /** The end of the run, for this package. Unlike `wait`, it does not replace a listener of `error`. */
  get end(): Promise<RunExit> {
    return this.#run.promises.end
  }

  get exited(): Promise<RootExit> {
    const { promises, hasRootExited } = this.#run
    promises.isAwaited = true
    return promises.rootExit(hasRootExited ? this.#run.rootExit() : undefined)
  }

  lines(options?: LinesOptions): AsyncIterable<string> {
    const lines = readLines(this, options)
    this.#run.promises.isAwaited = true
    return lines
  }

  async cancel(options?: CancelOptions): Promise<RunExit> {
    const { signal, graceMs, reason } = readCancelOptions(options)
    const { promises, descendants, settings } = this.#run
    descendants.keepAliveAgain()
    this.#run.cancel(signal, graceMs ?? settings.graceMs, reason)
    return promises.end
  }

  kill(signal?: NodeJS.Signals | number): boolean {
    return this.#run.kill(
      signal === 0 ? 0 : delivered(signalNumber(signal === undefined ? 'SIGTERM' : signal)),
    )
  }

  extendDeadline(ms: number): boolean {
    return extendDeadline(this.#run, ms)
  }

  setDeadline(change: DeadlineChange): boolean {
    return setDeadline(this.#run, change)
  }

  update(changes: RunChanges): void {
    const { labels, metadata } = readChanges(changes, this.labels, this.#run.settings.metadata)
    this.labels = labels
    this.#run.update(labels, metadata)
  }

  get metadata(): unknown {
    const { metadata } = this.#run.settings
    return metadata === undefined ? undefined : JSON.parse(metadata)
  }

  resize(cols: number, rows: number): void {
    resizeTerminal(this.#run, cols, rows)
  }

  /** The name of the foreground process of the terminal, if any. For `spawn-owned/node-pty`. */
  get foreground(): string | undefined {
    return this.#run.native?.foreground()
  }

  usage(): Promise<RunUsage> {
    return this.#run.usage()
  }

  ref(): void {
    this.#run.descendants.keepAlive(true)
  }

  unref(): void {
    this.#run.descendants.keepAlive(false)
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

  #replace(name: string, value: unknown): void {
    Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true })
  }
}

Object.setPrototypeOf(OwnedProcess.prototype, ChildProcess.prototype)
