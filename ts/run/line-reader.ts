// LineReader: the lines of one or two output streams, as an async iterator with back-pressure.

import type { Readable } from 'node:stream'

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d

/**
 * Reads lines from streams. It reads a chunk only when a caller asks for a line that is not there.
 *
 * It listens from its creation on, so that no output is lost if the command exits before the first
 * call of `next`. Lines are split as bytes: a character that arrives in two chunks stays whole.
 */
export class LineReader implements AsyncIterableIterator<string> {
  readonly #sources: Source[]
  #wake: (() => void) | undefined
  #error: Error | undefined
  #isDone = false
  /** The last call of `next` that has not settled. */
  #last: Promise<unknown> | undefined

  constructor(streams: readonly Readable[]) {
    this.#sources = streams.map((stream) => new Source(stream, (error) => this.#onChange(error)))
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Returns the next line. Several calls at once settle in their order, as in async generators. */
  next(): Promise<IteratorResult<string, undefined>> {
    const advance = () => this.#advance()
    const result = this.#last ? this.#last.then(advance, advance) : advance()
    this.#last = result
    const settled = () => {
      if (this.#last === result) this.#last = undefined
    }
    result.then(settled, settled)
    return result
  }

  /** Waits for the next line. Only one call waits at a time. */
  async #advance(): Promise<IteratorResult<string, undefined>> {
    while (!this.#isDone) {
      const line = this.#take()
      if (line !== undefined) return { value: line, done: false }
      if (this.#error) {
        this.#stop()
        throw this.#error
      }
      if (this.#sources.every((source) => source.isAtEnd)) this.#stop()
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
    }
    return { value: undefined, done: true }
  }

  /**
   * Stops reading, for example after `break`. Unread output stays in the streams. Pending calls of
   * `next` end.
   */
  async return(): Promise<IteratorResult<string, undefined>> {
    this.#stop()
    return { value: undefined, done: true }
  }

  /** Returns the next line that is there. The other stream has its turn next time. */
  #take(): string | undefined {
    for (const source of this.#sources) {
      const line = source.take()
      if (line === undefined) continue
      this.#sources.push(...this.#sources.splice(this.#sources.indexOf(source), 1))
      return line
    }
    return undefined
  }

  #onChange(error?: Error): void {
    this.#error ??= error
    this.#wake?.()
    this.#wake = undefined
  }

  #stop(): void {
    this.#isDone = true
    for (const source of this.#sources) source.release()
    this.#onChange()
  }
}

/** One stream, and the part of its output that is read and not yet returned. */
class Source {
  readonly #stream: Readable
  readonly #onChange: (error?: Error) => void
  /** The beginning of a line, without a line feed. */
  #begun: Buffer[] = []
  /** The rest of the last chunk. */
  #rest: Buffer | undefined
  #hasEnded: boolean

  constructor(stream: Readable, onChange: (error?: Error) => void) {
    this.#stream = stream
    this.#onChange = onChange
    this.#hasEnded = stream.readableEnded || stream.destroyed
    stream.on('readable', this.#wake).on('end', this.#onEnd).on('close', this.#onEnd)
    stream.on('error', onChange)
  }

  get isAtEnd(): boolean {
    return this.#hasEnded && this.#rest === undefined && this.#begun.length === 0
  }

  /** Returns the next line, or undefined if it is not complete yet. */
  take(): string | undefined {
    for (;;) {
      this.#rest ??= this.#read()
      if (this.#rest === undefined) return this.#hasEnded ? this.#last() : undefined
      const end = this.#rest.indexOf(LINE_FEED)
      if (end < 0) {
        this.#begun.push(this.#rest)
        this.#rest = undefined
        continue
      }
      const line = this.#line(this.#rest.subarray(0, end))
      this.#rest = end + 1 < this.#rest.length ? this.#rest.subarray(end + 1) : undefined
      return line
    }
  }

  /** Stops listening, and gives the stream back what was read and not returned. */
  release(): void {
    const stream = this.#stream
    stream.off('readable', this.#wake).off('end', this.#onEnd).off('close', this.#onEnd)
    stream.off('error', this.#onChange)
    const unread = Buffer.concat([...this.#begun, ...(this.#rest ? [this.#rest] : [])])
    this.#begun = []
    this.#rest = undefined
    if (unread.length === 0 || stream.readableEnded || stream.destroyed) return
    // With an encoding, the buffer of the stream contains text.
    if (stream.readableEncoding) stream.unshift(unread.toString(), 'utf8')
    else stream.unshift(unread)
  }

  #read(): Buffer | undefined {
    const chunk: Buffer | string | null = this.#stream.read()
    if (chunk === null) return undefined
    return typeof chunk === 'string' ? Buffer.from(chunk, this.#stream.readableEncoding ?? 'utf8') : chunk
  }

  /** Returns the last line, which has no line feed. */
  #last(): string | undefined {
    return this.#begun.length > 0 ? this.#line(undefined) : undefined
  }

  #line(end: Buffer | undefined): string {
    const bytes = this.#begun.length > 0 ? Buffer.concat([...this.#begun, ...(end ? [end] : [])]) : end
    this.#begun = []
    if (bytes === undefined) return ''
    const hasReturn = end !== undefined && bytes.at(-1) === CARRIAGE_RETURN
    return bytes.toString('utf8', 0, hasReturn ? bytes.length - 1 : bytes.length)
  }

  #wake = () => this.#onChange()

  #onEnd = () => {
    this.#hasEnded = true
    this.#onChange()
  }
}
