// The `stdio` option: what the command gets as descriptors, and the streams we keep.

import type { AsyncResource } from 'node:async_hooks'
import { Socket, type SocketConstructorOpts } from 'node:net'
import { constants } from 'node:os'
import { inspect } from 'node:util'
import { codedError, errnoError, invalidValue } from './errors.js'
import { closeStream, endStream, takeStream } from './native.js'
import { overDescriptor } from './runtimes.js'
import { isWindows } from './windows.js'

/** How the addon is told about one descriptor; any other number is a descriptor of ours. */
const CLOSED = -1
const NULL = -2
const PIPE = -3

/** Whether the command's output, or what it says on stderr, comes to us. */
export function hasOutput({ slots }: StdioPlan): boolean {
  return slots[1] === PIPE || slots[2] === PIPE
}

export interface StdioPlan {
  /** One per descriptor, as the addon wants it. */
  slots: number[]
  /** The descriptor that is the IPC channel, if any. */
  ipc: number | undefined
  /** Streams of ours that the command takes over. */
  lent: Socket[]
  /** Those among them whose handle only Node knows, each with its place among the slots. */
  unknown: { at: number; socket: Socket }[]
}

/** What is typed and what is said; the terminal itself is the command's. */
export function planTerminal(): StdioPlan {
  return { slots: [PIPE, PIPE, NULL], ipc: undefined, lent: [], unknown: [] }
}

/** Reads every form that child_process takes, with the same errors. */
export function planStdio(option: unknown): StdioPlan {
  const forms = expand(option || 'pipe')
  const plan: StdioPlan = { slots: [], ipc: undefined, lent: [], unknown: [] }
  for (let index = 0; index < forms.length; index++) {
    // Node passes over holes, but not over undefined.
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

/** A number, something with a number `fd`, or a socket. */
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

/** What libuv makes of a negative descriptor that was given as one. */
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
 * The one place that looks behind Node's public API: Node has none to ask a socket for its descriptor, and
 * `child_process` itself takes any socket as stdio.
 */
function handleOf(stream: object): Handle | undefined {
  const { handle, _handle } = stream as { handle?: Handle; _handle?: Handle }
  return [stream as Handle, handle, _handle].find(
    (value) => value && typeof value.fd === 'number' && value.fd >= 0,
  )
}

const lentStreams = new WeakSet<Socket>()

/** The command reads from these now; if we went on reading, we would take its input away. `ended`: when it does so no more. */
export function handOver(streams: readonly Socket[], ended: Promise<unknown>): void {
  for (const stream of streams) {
    lentStreams.add(stream)
    if (stream instanceof HeardSocket) stream.lend()
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
 * Node resumes the streams of a process that has exited, to have them drained, which may be long before our command has read what is in
 * them. It leaves out those that it has lent itself, by a mark that is out of our reach.
 */
function keepPaused(stream: Socket, ended: Promise<unknown>): void {
  const resume = () => stream
  stream.resume = resume
  void ended.then(() => {
    // Lent once more meanwhile: the other one's end decides.
    if (stream.resume === resume) Reflect.deleteProperty(stream, 'resume')
  })
}

/**
 * Our ends of a run's piped descriptors. What names one is the native side's; it becomes a descriptor when a stream is made of it.
 *
 * A stream that nobody asks for is never made: it would cost more than all the rest of a spawn does on this thread, and a
 * bot seldom wants all three. What the command writes meanwhile waits in the socket.
 */
export class Pipes {
  #pipes: readonly (Pipe | null)[]
  #listener: PipesListener
  #context: AsyncResource
  #relayed: boolean

  /**
   * Streams are made in `context`, that of the spawn, whoever asks for them first. `relayed`: what they say comes from a
   * terminal, through the native side, which ends them when everything was passed on.
   */
  constructor(fds: readonly number[], context: AsyncResource, relayed: boolean, listener: PipesListener) {
    this.#context = context
    this.#relayed = relayed
    this.#pipes = fds.map((fd, index) => (fd < 0 ? null : { fd, index, stream: undefined, closed: false }))
    this.#listener = listener
  }

  /** How often `closed` is going to be called. */
  get count(): number {
    return this.#pipes.filter((pipe) => pipe && pipe.index > 0).length
  }

  /** The stream at a descriptor, made now if need be; null if that descriptor is no pipe. */
  stream(index: number): Socket | null {
    const pipe = this.#pipes[index]
    return pipe ? this.#open(pipe) : null
  }

  all(): (Socket | null)[] {
    return this.#pipes.map((pipe) => pipe && this.#open(pipe))
  }

  /** The outputs from which something can still be heard. */
  openOutputs(): number[] {
    const open = this.#pipes.filter(
      (pipe) =>
        pipe &&
        isOutput(pipe) &&
        !pipe.closed &&
        !(pipe.stream && (pipe.stream.destroyed || lentStreams.has(pipe.stream))),
    )
    return open.map((pipe) => (pipe as Pipe).fd)
  }

  /** Says once more which outputs are read: nobody could hear it when they were opened. */
  tellReading(): void {
    for (const pipe of this.#pipes) {
      if (pipe?.stream && isOutput(pipe) && !pipe.stream.destroyed) this.#listener.reading(pipe.fd)
    }
  }

  /** The command is gone, and nobody reads what is written to it. */
  closeStdin(): void {
    const pipe = this.#pipes[0]
    if (pipe?.stream) pipe.stream.destroy()
    else if (pipe) this.#close(pipe)
  }

  /** Pulls through what nobody has read, so that streams which nobody touches come to their end. */
  drain(): void {
    for (const pipe of this.#pipes) {
      if (pipe?.stream?.readable && !lentStreams.has(pipe.stream)) pipe.stream.resume()
    }
  }

  /**
   * The tree is extinct, so whoever still holds the other end of a pipe is none of ours: what was written is read, and
   * then the stream ends.
   */
  end(): void {
    for (const pipe of this.#pipes) {
      if (!pipe) continue
      if (!pipe.stream) this.#close(pipe)
      // A stream that is destroyed has given its descriptor back, and the number may be somebody else's.
      else if (!pipe.stream.destroyed && !this.#relayed && !isWindows) endStream(pipe.fd)
    }
  }

  /** Nothing was started, and nobody will ever see the streams. */
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

/** Whoever wants to know what happens to a run's streams. */
export interface PipesListener {
  /** One of them but stdin is closed; told once for each. */
  closed(): void
  /** One of the outputs is read from here on. */
  reading(fd: number): void
  /** One of the outputs is read by somebody else from here on. */
  lent(fd: number): void
  /** One of the outputs is about to be closed. */
  closing(fd: number): void
  /** Something was read from one of the outputs. */
  heard(): void
}

const silentListener: PipesListener = { closed() {}, reading() {}, lent() {}, closing() {}, heard() {} }

/** A socket that tells when something was read from it, whether or not anybody wants that yet. */
class HeardSocket extends Socket {
  /** It is nobody's business that it is not just that. */
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
    if (chunk !== null) this.#listener.heard()
    return wantsMore
  }

  /** There a handle's value goes to the next one who opens something, at once. */
  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    if (isWindows) this.#listener.closing(this.#name)
    super._destroy(error, callback)
  }

  /** Another command reads from it now. */
  lend(): void {
    this.#listener.lent(this.#name)
  }
}

interface Pipe {
  readonly fd: number
  readonly index: number
  stream: Socket | undefined
  closed: boolean
}

const isOutput = ({ index }: { index: number }) => index === 1 || index === 2

/**
 * A stream like child_process makes them: stdin is only written to, the others go both ways.
 *
 * Reading starts on the next tick, so that a stream which is handed to another command meanwhile is never read from here.
 */
function openStream({ fd: name, index }: Pipe, listener: PipesListener): Socket {
  const fd = takeStream(name)
  // Out of descriptors: what nobody can read is closed, and the command hears of that.
  if (fd < 0) return new Socket().destroy()
  if (!isOutput({ index })) {
    const stream = overDescriptor(fd, index > 0, (options) => new Socket(options))
    if (index > 0) process.nextTick(startReading, stream)
    return stream
  }
  const output = overDescriptor(fd, true, (options) => new HeardSocket(options, name, listener))
  listener.reading(name)
  process.nextTick(startReading, output)
  return output
}

function startReading(stream: Socket): void {
  if (!lentStreams.has(stream) && !stream.destroyed) stream.read(0)
}
