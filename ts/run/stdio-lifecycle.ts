// StdioLifecycle: the streams and the IPC channel of a run, from the start to `close`.

import { AsyncResource } from 'node:async_hooks'
import type { EventEmitter } from 'node:events'
import type { Socket } from 'node:net'
import { nextTick, setImmediate } from '../util/timers.js'
import type { BorrowedChannel } from './ipc.js'
import { Pipes, type PipesListener } from './stdio.js'

/** The process that callers see, and that emits the events. */
export interface PublicProcess extends EventEmitter {
  readonly exitCode: number | null
  readonly signalCode: NodeJS.Signals | null
}

export class StdioLifecycle {
  readonly #process: PublicProcess
  /** The async context of the spawn. Listeners run in it. */
  readonly #context = new AsyncResource('OWNEDPROCESS')
  /** Undefined if the start failed before the streams were created. */
  #pipes: Pipes | undefined
  #all: (Socket | null)[] | undefined
  #channel: BorrowedChannel | undefined
  /**
   * How many things `close` waits for: the exit, each piped stream except stdin, the IPC channel.
   */
  #open = 1

  constructor(publicProcess: PublicProcess) {
    this.#process = publicProcess
  }

  stream(index: number): Socket | null | undefined {
    return this.#pipes?.stream(index)
  }

  all(): (Socket | null)[] | undefined {
    this.#all ??= this.#pipes?.all()
    return this.#all
  }

  /** Attaches the bot's ends of the streams. Returns undefined if that was done before. */
  attach(fds: readonly number[], isTerminal: boolean, listener: PipesListener): Pipes | undefined {
    if (this.#pipes) return undefined
    this.#pipes = new Pipes(fds, this.#context, isTerminal, listener)
    this.#open += this.#pipes.count
    return this.#pipes
  }

  /**
   * Attaches the IPC channel. It is another ChildProcess (see ipc.ts), hidden behind the public
   * one.
   */
  attachChannel(borrowed: BorrowedChannel): void {
    const { channel } = borrowed
    const visible = this.#process
    this.#channel = borrowed
    this.#open++
    Object.defineProperties(visible, {
      connected: { get: () => channel.connected, enumerable: true, configurable: true },
      channel: { get: () => channel.channel, enumerable: true, configurable: true },
      // The old name, if this version of Node still has it.
      ...('_channel' in channel && { _channel: { get: () => channel.channel, configurable: true } }),
    })
    Object.assign(visible, {
      send: channel.send.bind(channel),
      disconnect: channel.disconnect.bind(channel),
    })
    channel.removeAllListeners('error')
    for (const event of ['internalMessage', 'disconnect', 'error']) {
      channel.on(event, (...args) => visible.emit(event, ...args))
    }
    // Node queues messages until `message` has a listener. So listen only while the bot does.
    const forward = (...args: unknown[]) => visible.emit('message', ...args)
    visible.on('newListener', (event) => {
      if (event === 'message' && channel.listenerCount('message') === 0) channel.on('message', forward)
    })
    visible.on('removeListener', (event) => {
      if (event === 'message' && visible.listenerCount('message') === 0) channel.off('message', forward)
    })
    channel.once('close', () => this.closeOne())
  }

  /** Counts one of the things that `close` waits for. Emits `close` after the last. */
  closeOne(): void {
    if (--this.#open > 0) return
    const { exitCode, signalCode } = this.#process
    this.#process.emit('close', exitCode, signalCode)
  }

  /** Calls `act` after two turns of the event loop, in the async context of the spawn. */
  afterPendingReads(act: () => void): void {
    this.#context.runInAsyncScope(() => setImmediate(() => setImmediate(act)))
  }

  /** Emits `exit` on the channel, for the listeners that Node adds to it. */
  notifyChannel(): void {
    this.#channel?.exited(this.#process.exitCode, this.#process.signalCode)
  }

  closeStdin(): void {
    this.#pipes?.closeStdin()
  }

  /** Drains the streams without a reader, so that they end, and counts the exit. */
  afterExit(): void {
    // On the next tick, because a listener of `exit` can still start to read, and must get all
    // data.
    nextTick(() => this.#pipes?.drain())
    this.closeOne()
  }

  /** Ends streams and channel. Call it when no process of the run exists. */
  end(): void {
    this.endStreams()
    this.#channel?.end()
  }

  endStreams(): void {
    this.#pipes?.end()
  }

  /** Returns the bot's ends of the outputs that are still open. */
  openOutputs(): number[] {
    return this.#pipes?.openOutputs() ?? []
  }

  /** See {@link Pipes.reportReading}. */
  reportReading(): void {
    this.#pipes?.reportReading()
  }
}
