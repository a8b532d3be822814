// exec and execFile over an owned run: Node's rules, and the whole tree where Node ends one process.

import type { Readable } from 'node:stream'
import { getSystemErrorName, promisify } from 'node:util'
import type { OwnedProcess, SpawnOwnedOptions } from '../index.js'
import { checkObject, checkString, ownOptions } from './checks.js'
import { codedError, invalidType, outOfRange } from './errors.js'
import { spawnOwned } from './index.js'

const MAX_BUFFER = 1024 * 1024

/** What Node's execFile does not pass on to its spawn; and a terminal, which has no stderr that could be kept apart. */
const NOT_PASSED_ON = {
  ...{ stdio: undefined, detached: undefined, argv0: undefined, serialization: undefined },
  ...{ pty: undefined },
}

type Callback = (error: Error | null, stdout: string | Buffer, stderr: string | Buffer) => void

interface ExecFileOptions extends SpawnOwnedOptions {
  encoding?: BufferEncoding | 'buffer' | null
  maxBuffer?: number
}

export function exec(command: unknown, options?: unknown, callback?: unknown): OwnedProcess {
  checkString(command, 'command')
  const [given, done] = typeof options === 'function' ? [undefined, options] : [options, callback]
  const ours = ownOptions<ExecFileOptions>(given)
  return execFile(command, { ...ours, shell: typeof ours.shell === 'string' ? ours.shell : true }, done)
}

export function execFile(file: unknown, ...rest: [args?: unknown, options?: unknown, callback?: unknown]) {
  const { args, options, callback } = readArguments(...rest)
  checkMaxBuffer(options.maxBuffer)
  const child = spawnOwned(file as string, args as string[], {
    ...options,
    ...NOT_PASSED_ON,
    windowsHide: Boolean(options.windowsHide),
    windowsVerbatimArguments: Boolean(options.windowsVerbatimArguments),
  })
  new Execution(child, [file, ...(args as unknown[])].join(' '), options, callback)
  return child
}

/** All but the file may be left out. */
function readArguments(second?: unknown, third?: unknown, fourth?: unknown) {
  let [args, given, callback] = [second, third, fourth]
  if (typeof second === 'function') [args, given, callback] = [undefined, undefined, second]
  else if (second != null && typeof second === 'object' && !Array.isArray(second))
    [args, given, callback] = [undefined, second, third]
  if (typeof given === 'function') [given, callback] = [undefined, given]
  if (given != null) checkObject(given, 'options')
  if (callback != null && typeof callback !== 'function')
    throw invalidType('callback', 'of type function', callback)
  const options = ownOptions<ExecFileOptions>({ encoding: 'utf8', maxBuffer: MAX_BUFFER, ...given })
  if (options.argv0 != null) checkString(options.argv0, 'options.argv0')
  return { args: args ?? [], options, callback: callback as Callback | undefined }
}

/** Where versions of Node differ we do as the one we run on. */
const nodeVersion = Number.parseInt(process.versions.node, 10)

function checkMaxBuffer(maxBuffer: unknown): void {
  if (maxBuffer == null || (typeof maxBuffer === 'number' && maxBuffer >= 0)) return
  if (nodeVersion < 26) throw outOfRange('options.maxBuffer', 'a positive number', maxBuffer)
  if (typeof maxBuffer !== 'number') throw invalidType('options.maxBuffer', 'of type number', maxBuffer)
  throw outOfRange('options.maxBuffer', '>= 0', maxBuffer)
}

/** What one stream has said, as far as it may be kept. */
class Output {
  readonly #stream: Readable | null | undefined
  readonly #encoding: BufferEncoding | null
  readonly #chunks: (string | Buffer)[] = []
  #bytes = 0
  #isFull = false

  constructor(stream: Readable | null | undefined, encoding: BufferEncoding | null) {
    this.#stream = stream
    this.#encoding = encoding
    if (encoding) stream?.setEncoding(encoding)
  }

  /** `overflow` is called when there is more than that, which is not kept. */
  listen(limit: number, overflow: () => void): void {
    this.#stream?.on('data', (chunk: string | Buffer) => {
      if (this.#isFull) return
      const before = this.#bytes
      // The caller may have given the stream an encoding since.
      this.#bytes += Buffer.byteLength(chunk, this.#stream?.readableEncoding ?? undefined)
      this.#isFull = this.#bytes > limit
      this.#chunks.push(this.#isFull ? chunk.slice(0, limit - before) : chunk)
      if (this.#isFull) overflow()
    })
  }

  close(): void {
    this.#stream?.destroy()
  }

  get value(): string | Buffer {
    const isText = this.#encoding || this.#stream?.readableEncoding
    return isText ? this.#chunks.join('') : Buffer.concat(this.#chunks as Buffer[])
  }
}

/** Keeps what the command says, and calls back once: when it has ended and said everything, or when it has failed. */
class Execution {
  readonly #child: OwnedProcess
  readonly #command: string
  readonly #callback: Callback | undefined
  readonly #stdout: Output
  readonly #stderr: Output
  #failure: Error | undefined
  #isOver = false

  constructor(
    child: OwnedProcess,
    command: string,
    options: ExecFileOptions,
    callback: Callback | undefined,
  ) {
    this.#child = child
    this.#command = command
    this.#callback = callback
    const encoding = knownEncoding(options.encoding)
    this.#stdout = new Output(child.stdout, encoding)
    this.#stderr = new Output(child.stderr, encoding)
    const tooMuch = (name: string) => () =>
      this.#stop(tooMuchOutput(name), options.killSignal as NodeJS.Signals)
    this.#stdout.listen(options.maxBuffer as number, tooMuch('stdout'))
    this.#stderr.listen(options.maxBuffer as number, tooMuch('stderr'))
    child.on('close', (code, signal) => this.#finish(code, signal))
    child.on('error', (error) => {
      this.#failure = error
      this.#hangUp()
      this.#finish(null, null)
    })
  }

  #hangUp(): void {
    this.#stdout.close()
    this.#stderr.close()
  }

  /**
   * All of the tree: whoever writes that much need not be its root. Its streams stay until it is gone: who loses them may exit because of
   * that, before the cancel is there, and the reason would not be the true one.
   */
  #stop(error: Error, signal: NodeJS.Signals | undefined): void {
    this.#failure ??= error
    Object.assign(this.#child, { killed: true })
    void this.#child.cancel({ signal }).then(() => this.#hangUp())
  }

  #finish(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#isOver) return
    this.#isOver = true
    if (!this.#callback) return
    const [stdout, stderr] = [this.#stdout.value, this.#stderr.value]
    if (!this.#failure && code === 0 && signal === null) {
      this.#callback(null, stdout, stderr)
      return
    }
    const error = this.#failure ?? this.#exitError(code, signal, stderr)
    this.#callback(Object.assign(error, { cmd: this.#command }), stdout, stderr)
  }

  #exitError(code: number | null, signal: NodeJS.Signals | null, stderr: string | Buffer): Error {
    return Object.assign(new Error(`Command failed: ${this.#command}\n${stderr}`), {
      code: code !== null && code < 0 ? getSystemErrorName(code) : code,
      killed: this.#child.killed,
      signal,
    })
  }
}

function knownEncoding(encoding: unknown): BufferEncoding | null {
  return encoding !== 'buffer' && Buffer.isEncoding(encoding as string) ? (encoding as BufferEncoding) : null
}

function tooMuchOutput(name: string): Error {
  return codedError(RangeError, 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER', `${name} maxBuffer length exceeded`)
}

/** What `util.promisify` makes of them: the promise has the process, and a rejection has the output. */
function promised(start: (...args: unknown[]) => OwnedProcess) {
  const promising = (...args: unknown[]) => {
    let done!: Callback
    const promise = new Promise((resolve, reject) => {
      done = (error, stdout, stderr) =>
        error ? reject(Object.assign(error, { stdout, stderr })) : resolve({ stdout, stderr })
    })
    // Not within the promise: wrong arguments are thrown, as in Node.
    return Object.assign(promise, { child: start(...args, done) })
  }
  return Object.defineProperty(promising, 'name', { value: start.name })
}

for (const start of [exec, execFile] as ((...args: unknown[]) => OwnedProcess)[])
  Object.defineProperty(start, promisify.custom, { value: promised(start) })
