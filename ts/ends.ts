// The ends of a run that its bot holds: the streams and the IPC channel, and `close`, which comes when the last of them is closed.

import { AsyncResource } from 'node:async_hooks'
import type { EventEmitter } from 'node:events'
import type { Socket } from 'node:net'
import type { BorrowedChannel } from './ipc.js'
import { Pipes, type PipesListener } from './stdio.js'

/** What they are the ends of, as its callers see it. */
export interface Face extends EventEmitter {
  readonly exitCode: number | null
  readonly signalCode: NodeJS.Signals | null
}

export class Ends {
  readonly #face: Face
  /** Listeners run in the context in which the run was started. */
  readonly #context = new AsyncResource('OWNEDPROCESS')
  /** Undefined if the command failed before there could be any. */
  #pipes: Pipes | undefined
  #all: (Socket | null)[] | undefined
  #channel: BorrowedChannel | undefined
  /** What `close` waits for: the exit, every piped stream but stdin, the IPC channel. */
  #open = 1

  constructor(face: Face) {
    this.#face = face
  }

  stream(index: number): Socket | null | undefined {
    return this.#pipes?.stream(index)
  }

  all(): (Socket | null)[] | undefined {
    this.#all ??= this.#pipes?.all()
    return this.#all
  }

  /** Our ends of the command's streams, unless there are some already. `isTerminal`: what they say comes from a terminal. */
  attach(fds: readonly number[], isTerminal: boolean, listener: PipesListener): Pipes | undefined {
    if (this.#pipes) return undefined
    this.#pipes = new Pipes(fds, this.#context, isTerminal, listener)
    this.#open += this.#pipes.count
    return this.#pipes
  }

  /** The channel is a ChildProcess of its own (see ipc.ts); to our callers it is this one. */
  attachChannel(borrowed: BorrowedChannel): void {
    const { channel } = borrowed
    const face = this.#face
    this.#channel = borrowed
    this.#open++
    Object.defineProperties(face, {
      connected: { get: () => channel.connected, enumerable: true, configurable: true },
      channel: { get: () => channel.channel, enumerable: true, configurable: true },
      // Its name of old, where Node still has it.
      ...('_channel' in channel && { _channel: { get: () => channel.channel, configurable: true } }),
    })
    Object.assign(face, {
      send: channel.send.bind(channel),
      disconnect: channel.disconnect.bind(channel),
    })
    channel.removeAllListeners('error')
    for (const event of ['internalMessage', 'disconnect', 'error']) {
      channel.on(event, (...args) => face.emit(event, ...args))
    }
    // Node keeps messages until somebody listens. So we listen only while somebody listens to us.
    const forward = (...args: unknown[]) => face.emit('message', ...args)
    face.on('newListener', (event) => {
      if (event === 'message' && channel.listenerCount('message') === 0) channel.on('message', forward)
    })
    face.on('removeListener', (event) => {
      if (event === 'message' && face.listenerCount('message') === 0) channel.off('message', forward)
    })
    channel.once('close', () => this.closeOne())
  }

  /** One of what `close` waits for is over. */
  closeOne(): void {
    if (--this.#open > 0) return
    const { exitCode, signalCode } = this.#face
    this.#face.emit('close', exitCode, signalCode)
  }

  /** Once round the event loop, and once more, in the context of the spawn. */
  inDueTime(act: () => void): void {
    this.#context.runInAsyncScope(() => setImmediate(() => setImmediate(act)))
  }

  /** Tells whoever has attached to the channel that the command has ended. */
  tellChannel(): void {
    this.#channel?.exited(this.#face.exitCode, this.#face.signalCode)
  }

  /** Nobody reads what is written to it. */
  closeStdin(): void {
    this.#pipes?.closeStdin()
  }

  /** Has streams which nobody touches come to their end, and counts the exit. */
  afterExit(): void {
    // On the next tick, so that somebody who starts to read when the process has exited gets everything.
    process.nextTick(() => this.#pipes?.drain())
    this.closeOne()
  }

  /** Nothing of the run exists that could write, or answer. */
  end(): void {
    this.endStreams()
    this.#channel?.end()
  }

  endStreams(): void {
    this.#pipes?.end()
  }

  /** Our ends of its outputs that can still be listened to. */
  openOutputs(): number[] {
    return this.#pipes?.openOutputs() ?? []
  }

  /** See {@link Pipes.tellReading}. */
  tellReading(): void {
    this.#pipes?.tellReading()
  }
}
