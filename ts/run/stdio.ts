// The `stdio` option: the file descriptors of the command, and the bot's ends of its pipes.

import type { AsyncResource } from 'node:async_hooks'
import { Socket, type SocketConstructorOpts } from 'node:net'
import { constants } from 'node:os'
import { inspect } from 'node:util'
import { closeStream, endStream, streamId, takeStream } from '../native/addon.js'
import { codedError, errnoError, invalidValue } from '../util/errors.js'
import { overDescriptor } from '../util/runtimes.js'
import { nextTick } from '../util/timers.js'
import { isWindows } from '../util/windows.js'

/** Values of a slot for the addon. A value ≥ 0 is a file descriptor of the bot. */
const CLOSED = -1
const NULL = -2
const PIPE = -3

/** Whether stdout or stderr of the command is a pipe to the bot. */
export function hasOutput({ slots }: StdioPlan): boolean {
  return slots[1] === PIPE || slots[2] === PIPE
}

export interface StdioPlan {
  /** One value per descriptor, for the addon. */
  slots: number[]
  /** The descriptor of the IPC channel, if any. */
  ipc: number | undefined
  /** Sockets of the bot that the command uses from the start on. */
  lent: Socket[]
  /** Those of them whose handle only Node knows, with the index of their slot. */
  unknown: { at: number; socket: Socket }[]
}

/** Returns the plan for a run with a terminal: a pipe for its input and a pipe for its output. */
export function planTerminal(): StdioPlan {
  return { slots: [PIPE, PIPE, NULL], ipc: undefined, lent: [], unknown: [] }
}

/** Reads the `stdio` option in every form that child_process accepts, with the same errors. */
export function planStdio(option: unknown): StdioPlan {
  const forms = expand(option || 'pipe')
  const plan: StdioPlan = { slots: [], ipc: undefined, lent: [], unknown: [] }
  for (let index = 0; index < forms.length; index++) {
    // Node skips holes of the array, but not undefined.
    if (!(index in forms)) continue
    const form = forms[index] ?? (index < 3 ? 'pipe' : 'ignore')
    if (form === 'ignore') {
      plan.slots.push(index < 3 ? NULL : CLOSED)
    } else if (form === 'pipe' || form === 'overlapped' || (typeof form === 'number' && form < 0)) {
      plan.slots.push(PIPE)
    } else if (form === 'ipc') {
      if (plan.ipc !== undefined) {
        throw codedError(Error, 'ERR_IPC_ONE_PIPE', 'Child process can have only one IPC pipe')
      }
      plan.ipc = index
      plan.slots.push(CLOSED)
    } else if (form === 'inherit') {
      plan.slots.push(index)
    } else {
      plan.slots.push(descriptorOf(form, index, plan))
    }
  }
  return plan
}

function expand(option: unknown): unknown[] {
  if (Array.isArray(option)) {
    const forms = option.slice()
    while (forms.length < 3) forms.push(undefined)
    return forms
  }
  switch (option) {
    case 'ignore':
    case 'overlapped':
    case 'pipe':
      return [option, option, option]
    case 'inherit':
      return [0, 1, 2]
    default:
      throw invalidValue('stdio', option)
  }
}

/** Returns the descriptor of a number, of an object with a numeric `fd`, or of a socket. */
function descriptorOf(form: unknown, index: number, plan: StdioPlan): number {
  if (typeof form === 'number') return form
  if (typeof form === 'string' || ArrayBuffer.isView(form)) {
    throw codedError(
      TypeError,
      'ERR_INVALID_SYNC_FORK_INPUT',
      `Asynchronous forks do not support Buffer, TypedArray, DataView or string input: ${inspect(form)}`,
    )
  }
  if (typeof form === 'object' && form !== null) {
    const { fd } = form as { fd?: unknown }
    if (typeof fd === 'number') return checked(fd, index)
    const handle = handleOf(form)
    if (handle) {
      if (form instanceof Socket) plan.lent.push(form)
      return handle.fd
    }
    if (isWindows && form instanceof Socket && (form as { _handle?: unknown })._handle) {
      plan.lent.push(form)
      plan.unknown.push({ at: plan.slots.length, socket: form })
      return CLOSED
    }
  }
  throw invalidValue('stdio', form)
}

/** Returns the slot of an object's `fd`. Treats a negative `fd` as libuv does. */
function checked(fd: number, index: number): number {
  if (fd >= 0) return fd
  if (fd === -1 && !isWindows) throw errnoError(constants.errno.EINVAL, 'spawn')
  return index < 3 ? NULL : CLOSED
}

interface Handle {
  fd: number
  reading?: boolean
  readStop?(): void
}

/**
 * Returns the handle of a stream.
 *
 * This is the only use of Node's private API: the public one does not return the descriptor of a
 * socket, and `child_process` accepts any socket as stdio.
 */
function handleOf(stream: object): Handle | undefined {
  const { handle, _handle } = stream as { handle?: Handle; _handle?: Handle }
  return [stream as Handle, handle, _handle].find(
    (value) => value && typeof value.fd === 'number' && value.fd >= 0,
  )
}

const lentStreams = new WeakSet<Socket>()

/**
 * Stops reading from sockets that the command reads from now, because the bot would take its input.
 *
 * `ended` resolves when the command does not use them any more.
 */
export function handOver(streams: readonly Socket[], ended: Promise<unknown>): void {
  for (const stream of streams) {
    lentStreams.add(stream)
    if (stream instanceof OutputSocket) stream.lend()
    else keepPaused(stream, ended)
    const handle = handleOf(stream)
    if (handle?.reading) {
      handle.reading = false
      handle.readStop?.()
    }
    stream.pause()
    const { _readableState: state } = stream as unknown as { _readableState?: { reading: boolean } }
    if (state) state.reading = false
  }
}

/**
 * Makes `resume` of a lent socket a no-op until the command has ended.
 *
 * Node resumes the streams of a process that has exited, to drain them. The command may not have
 * read them yet. Node skips the sockets that it lent itself, but other code cannot set that mark.
 */
function keepPaused(stream: Socket, ended: Promise<unknown>): void {
  const resume = () => stream
  stream.resume = resume
  void ended.then(() => {
    // If the socket was lent again meanwhile, the end of that command decides.
    if (stream.resume === resume) Reflect.deleteProperty(stream, 'resume')
  })
}

/**
 * The bot's ends of the pipes of a run. The native side owns each until a stream is created for it.
 *
 * A stream is created at its first use. To create it costs more than the rest of a spawn on this
 * thread, and a bot rarely uses all three. Until then the output waits in the socket.
 */
export class Pipes {
  #pipes: readonly (Pipe | null)[]
  #listener: PipesListener
  #context: AsyncResource
  #relayed: boolean

  /**
   * `context`: the async context of the spawn. All streams are created in it.
   *
   * `relayed`: the native side relays the output of a terminal. It ends the streams after all data.
   */
  constructor(fds: readonly number[], context: AsyncResource, relayed: boolean, listener: PipesListener) {
    this.#context = context
    this.#relayed = relayed
    this.#pipes = fds.map((fd, index) =>
      fd < 0 ? null : { fd, index, id: null, stream: undefined, closed: false },
    )
    this.#listener = listener
  }

  /** How often `closed` will be called. */
  get count(): number {
    return this.#pipes.filter((pipe) => pipe && pipe.index > 0).length
  }

  /**
   * Returns the stream of a descriptor, and creates it if needed. Null if the descriptor is no
   * pipe.
   */
  stream(index: number): Socket | null {
    const pipe = this.#pipes[index]
    return pipe ? this.#open(pipe) : null
  }

  all(): (Socket | null)[] {
    return this.#pipes.map((pipe) => pipe && this.#open(pipe))
  }

  /** Returns the outputs that are open, and that no other process reads. */
  openOutputs(): number[] {
    const open = this.#pipes.filter(
      (pipe) =>
        pipe &&
        isOutput(pipe) &&
        !pipe.closed &&
        !(pipe.stream && (!isStillOurs(pipe) || lentStreams.has(pipe.stream))),
    )
    return open.map((pipe) => (pipe as Pipe).fd)
  }

  /** Reports which outputs the bot reads. They were opened before the run existed natively. */
  reportReading(): void {
    for (const pipe of this.#pipes) {
      if (pipe?.stream && isOutput(pipe) && !pipe.stream.destroyed) this.#listener.reading(pipe.fd)
    }
  }

  /** Closes stdin: the command has ended and does not read it. */
  closeStdin(): void {
    const pipe = this.#pipes[0]
    if (pipe?.stream) pipe.stream.destroy()
    else if (pipe) this.#close(pipe)
  }

  /** Resumes the streams, so that those without a reader end. */
  drain(): void {
    for (const pipe of this.#pipes) {
      if (pipe?.stream?.readable && !lentStreams.has(pipe.stream)) pipe.stream.resume()
    }
  }

  /**
   * Ends the streams after the data that is already written.
   *
   * No process of the tree exists, so a process that still holds the other end does not belong to
   * the run.
   */
  end(): void {
    for (const pipe of this.#pipes) {
      if (!pipe) continue
      if (!pipe.stream) this.#close(pipe)
      // Not if the stream was destroyed, or sent to another process: its descriptor is closed, and
      // another socket can have the same number.
      else if (pipe.id !== null && !pipe.stream.destroyed && !this.#relayed) endStream(pipe.fd, pipe.id)
    }
  }

  /** Closes all pipes. Call it if nothing was started, and no caller can get the streams. */
  discard(): void {
    this.#listener = silentListener
    for (const pipe of this.#pipes) if (pipe) this.#close(pipe)
  }

  #open(pipe: Pipe): Socket {
    if (!pipe.stream) {
      pipe.stream = pipe.closed
        ? new Socket().destroy()
        : this.#context.runInAsyncScope(openStream, null, pipe, this.#listener)
      if (pipe.index > 0 && !pipe.closed) pipe.stream.on('close', () => this.#listener.closed())
    }
    return pipe.stream
  }

  #close(pipe: Pipe): void {
    if (pipe.closed || pipe.stream) return
    pipe.closed = true
    closeStream(pipe.fd)
    if (pipe.index > 0) this.#listener.closed()
  }
}

/** Callbacks about the streams of a run. */
export interface PipesListener {
  /** A stream other than stdin was closed. Called once for each. */
  closed(): void
  /** The bot starts to read an output. */
  reading(fd: number): void
  /** Another process reads an output from now on. */
  lent(fd: number): void
  /** The bot is about to close an output. */
  closing(fd: number): void
  /** The bot read data from an output. */
  outputRead(): void
}

const silentListener: PipesListener = { closed() {}, reading() {}, lent() {}, closing() {}, outputRead() {} }

/** A socket that reports when data was read from it, even if the data is only buffered. */
class OutputSocket extends Socket {
  /** Callers see a plain Socket, as in Node. */
  static override readonly name = 'Socket'
  readonly #listener: PipesListener
  readonly #name: number

  constructor(options: SocketConstructorOpts, name: number, listener: PipesListener) {
    super(options)
    this.#listener = listener
    this.#name = name
  }

  override push(chunk: unknown, encoding?: BufferEncoding): boolean {
    const wantsMore = super.push(chunk, encoding)
    if (chunk !== null) this.#listener.outputRead()
    return wantsMore
  }

  /** Reports the close first on Windows, because the next open can get the same handle value. */
  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    if (isWindows) this.#listener.closing(this.#name)
    super._destroy(error, callback)
  }

  /** Reports that another command reads from this socket now. */
  lend(): void {
    this.#listener.lent(this.#name)
  }
}

interface Pipe {
  readonly fd: number
  readonly index: number
  /** The identity of the socket when the stream was created. Null before that, and on Windows. */
  id: string | null
  stream: Socket | undefined
  closed: boolean
}

/**
 * Whether the stream still has its descriptor: the bot can destroy it, or send it to another
 * process.
 */
function isStillOurs({ fd, id, stream }: Pipe): boolean {
  return stream?.destroyed === false && (isWindows || streamId(fd) === id)
}

const isOutput = ({ index }: { index: number }) => index === 1 || index === 2

/**
 * Creates a stream as child_process does: stdin is write-only, the others are duplex.
 *
 * Reading starts on the next tick. If the bot passes the stream to another command in this tick,
 * the bot reads nothing from it.
 */
function openStream(pipe: Pipe, listener: PipesListener): Socket {
  const { fd: name, index } = pipe
  const fd = takeStream(name)
  // No file descriptor is left. The stream is closed, so the command gets EPIPE or SIGPIPE.
  if (fd < 0) return new Socket().destroy()
  // Now, before code of the bot can close the descriptor.
  pipe.id = streamId(fd)
  if (!isOutput({ index })) {
    const stream = overDescriptor(fd, index > 0, (options) => new Socket(options))
    if (index > 0) nextTick(startReading, stream)
    return stream
  }
  const output = overDescriptor(fd, true, (options) => new OutputSocket(options, name, listener))
  listener.reading(name)
  nextTick(startReading, output)
  return output
}

function startReading(stream: Socket): void {
  if (!lentStreams.has(stream) && !stream.destroyed) stream.read(0)
}
