// RunPromises: what callers wait for, the end of a run and the exit of its root process.

import { type EventEmitter, errorMonitor } from 'node:events'
import type { RootExit, RunExit } from '../../index.js'

export class RunPromises {
  /** The end of the run. It never rejects. */
  readonly end: Promise<RunExit>
  /** Resolves `end`. */
  settle!: (exit: RunExit) => void
  /** A caller gets errors of the run from a promise, and needs no listener of `error`. */
  isAwaited = false
  /** Created on demand. */
  #rootExit: Promise<RootExit> | undefined
  #settleRootExit: ((exit: RootExit) => void) | undefined

  constructor() {
    this.end = new Promise((resolve) => {
      this.settle = resolve
    })
  }

  /** Returns the exit of the root process. `known` is that exit, if it has happened. */
  rootExit(known: RootExit | undefined): Promise<RootExit> {
    this.#rootExit ??= new Promise((resolve) => {
      this.#settleRootExit = resolve
      if (known) resolve(known)
    })
    return this.#rootExit
  }

  /** Resolves the exit of the root process, if a caller waits for it. */
  settleRootExit(exit: RootExit): void {
    this.#settleRootExit?.(exit)
  }

  /**
   * Emits `error`, unless that would throw although a caller gets the error from a promise.
   *
   * Without a listener, `emit('error')` throws, and an exception here ends the bot.
   */
  emitError(process: EventEmitter, error: Error): void {
    const event = this.isAwaited && process.listenerCount('error') === 0 ? errorMonitor : 'error'
    process.emit(event, error)
  }
}
