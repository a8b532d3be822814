// exec and execFile with owned runs: Node's rules, but they terminate the whole tree.

import type { Readable } from 'node:stream'
import { getSystemErrorName, promisify } from 'node:util'
import type { OwnedProcess, SpawnOwnedOptions } from '../../index.js'
import { spawnOwned } from '../index.js'
import { codedError, invalidType, outOfRange } from '../util/errors.js'
import { checkObject, checkString, ownOptions } from '../util/validation.js'
import { keepDescendants } from './keep-descendants.js'

const MAX_BUFFER = 1024 * 1024

/**
 * Options that Node's execFile does not pass to spawn. And `pty`: a terminal has no separate
 * stderr.
 */
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
  const child = spawnOwned(
    file as string,
    args as string[],
    keepDescendants({
      ...options,
      ...NOT_PASSED_ON,
      windowsHide: Boolean(options.windowsHide),
      windowsVerbatimArguments: Boolean(options.windowsVerbatimArguments),
    }),
  )
  new Execution(child, [file, ...(args as unknown[])].join(' '), options, callback)
  return child
}

/** Reads the arguments. All except the file are optional. */
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

/** Where versions of Node differ, this package follows the running one. */
const nodeVersion = Number.parseInt(process.versions.node, 10)

function checkMaxBuffer(maxBuffer: unknown): void {
  if (maxBuffer == null || (typeof maxBuffer === 'number' && maxBuffer >= 0)) return
  if (nodeVersion < 26) throw outOfRange('options.maxBuffer', 'a positive number', maxBuffer)
  if (typeof maxBuffer !== 'number') throw invalidType('options.maxBuffer', 'of type number', maxBuffer)
  throw outOfRange('options.maxBuffer', '>= 0', maxBuffer)
}

/** The output of one stream, up to `maxBuffer`. */
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

  /**
   * Collects the output. Calls `overflow` once if there is more than `limit`; the rest is dropped.
   */
  listen(limit: number, overflow: () => void): void {
    this.#stream?.on('data', (chunk: string | Buffer) => {
      if (this.#isFull) return
      const before = this.#bytes
      // The caller can set an encoding at any time.
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

/** Collects the output of a command, and calls back once: at its end, or when it fails. */
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
      this.#closeStreams()
      this.#finish(null, null)
    })
  }

  #closeStreams(): void {
    this.#stdout.close()
    this.#stderr.close()
  }

  /**
   * Terminates the whole tree: the process that writes too much need not be the root process.
   *
   * The streams are closed after that, because a process can exit when it loses its stream. If it
   * did so before the cancel arrives, the reason of the exit would be wrong.
   */
  #stop(error: Error, signal: NodeJS.Signals | undefined): void {
    this.#failure ??= error
    Object.assign(this.#child, { killed: true })
    void this.#child.cancel({ signal }).then(() => this.#closeStreams())
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

/**
 * Returns the variant for `util.promisify`: the promise has the process, a rejection the output.
 */
function promised(start: (...args: unknown[]) => OwnedProcess) {
  const promising = (...args: unknown[]) => {
    let done!: Callback
    const promise = new Promise((resolve, reject) => {
      done = (error, stdout, stderr) =>
        error ? reject(Object.assign(error, { stdout, stderr })) : resolve({ stdout, stderr })
    })
    // Outside of the promise: invalid arguments throw, as in Node.
    return Object.assign(promise, { child: start(...args, done) })
  }
  return Object.defineProperty(promising, 'name', { value: start.name })
}

for (const start of [exec, execFile] as ((...args: unknown[]) => OwnedProcess)[])
  Object.defineProperty(start, promisify.custom, { value: promised(start) })
