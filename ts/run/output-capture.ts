// OutputCapture: the beginning and the end of an output, in bounded memory. Pure.

import { constants } from 'node:buffer'

const LINE_FEED = 0x0a
/** How many chunks may wait before they are joined: each costs more memory than a short text. */
const MAX_CHUNKS = 256
/** With less room than this, a note about what is missing would replace the output itself. */
const MIN_BYTES_FOR_NOTE = 256
const MIN_LINES_FOR_NOTE = 3

export interface CaptureLimits {
  /** The most bytes to keep. */
  readonly bytes: number
  /** The most lines to keep. */
  readonly lines: number
}

/** Keeps the first and the last half of an output. Uses at most about twice the limit of memory. */
export class OutputCapture {
  readonly #limits: CaptureLimits
  readonly #headLimit: number
  readonly #tailLimit: number
  #head: Buffer[] = []
  #headBytes = 0
  #tail: Buffer[] = []
  #tailBytes = 0
  #total = 0

  constructor({ bytes, lines }: CaptureLimits) {
    this.#limits = { bytes: Math.min(bytes, constants.MAX_STRING_LENGTH), lines }
    this.#headLimit = Math.ceil(this.#limits.bytes / 2)
    this.#tailLimit = this.#limits.bytes - this.#headLimit
  }

  add(chunk: Buffer): void {
    this.#total += chunk.length
    const forHead = Math.min(chunk.length, this.#headLimit - this.#headBytes)
    if (forHead > 0) {
      this.#head.push(chunk.subarray(0, forHead))
      this.#headBytes += forHead
      if (this.#head.length > MAX_CHUNKS) this.#head = [Buffer.concat(this.#head)]
    }
    if (forHead < chunk.length) this.#addToTail(chunk.subarray(forHead))
  }

  #addToTail(chunk: Buffer): void {
    // A copy, because a part of a chunk keeps the whole chunk in memory.
    const kept = chunk.length > this.#tailLimit ? Buffer.from(last(chunk, this.#tailLimit)) : chunk
    this.#tail.push(kept)
    this.#tailBytes += kept.length
    if (this.#tailBytes <= 2 * this.#tailLimit && this.#tail.length <= MAX_CHUNKS) return
    const joined = Buffer.concat(this.#tail)
    this.#tail = [Buffer.from(last(joined, this.#tailLimit))]
    this.#tailBytes = this.#tail[0]?.length ?? 0
  }

  /** Returns the output, or its beginning and its end with a note between them. */
  result(): { text: string; truncated: boolean } {
    const head = Buffer.concat(this.#head)
    const tail = last(Buffer.concat(this.#tail), this.#tailLimit)
    const whole = head.length + tail.length === this.#total ? Buffer.concat([head, tail]) : undefined
    if (whole && countLines(whole) <= this.#limits.lines) return { text: whole.toString(), truncated: false }
    return { text: this.#shortened(whole ?? head, whole ?? tail), truncated: true }
  }

  /** Joins the beginning of `head` and the end of `tail`, within the limits. */
  #shortened(head: Buffer, tail: Buffer): string {
    const { bytes, lines } = this.#limits
    const hasNote = bytes >= MIN_BYTES_FOR_NOTE && lines >= MIN_LINES_FOR_NOTE
    const room = hasNote ? note(this.#total).length : 0
    const linesLeft = hasNote ? lines - 1 : lines
    const headLines = Math.ceil(linesLeft / 2)
    const headRoom = Math.ceil((bytes - room) / 2)
    const start = firstLines(wholeStart(head.subarray(0, headRoom)), headLines)
    const end = lastLines(wholeEnd(last(tail, bytes - room - headRoom)), Math.floor(linesLeft / 2))
    const omitted = this.#total - start.length - end.length
    return start.toString() + (hasNote ? note(omitted, start) : '') + end.toString()
  }
}

/** Returns the note about omitted bytes, on a line of its own. */
function note(bytes: number, before?: Buffer): string {
  const newLine = before && (before.length === 0 || before.at(-1) === LINE_FEED) ? '' : '\n'
  return `${newLine}[... ${bytes} bytes omitted ...]\n`
}

const last = (bytes: Buffer, count: number) => bytes.subarray(Math.max(0, bytes.length - count))

/** Counts lines. The last need not end with a line feed. */
function countLines(bytes: Buffer): number {
  let count = 0
  for (let at = bytes.indexOf(LINE_FEED); at >= 0; at = bytes.indexOf(LINE_FEED, at + 1)) count++
  return bytes.length > 0 && bytes.at(-1) !== LINE_FEED ? count + 1 : count
}

function firstLines(bytes: Buffer, count: number): Buffer {
  if (count === 0) return bytes.subarray(0, 0)
  let end = -1
  for (let line = 0; line < count; line++) {
    end = bytes.indexOf(LINE_FEED, end + 1)
    if (end < 0) return bytes
  }
  return bytes.subarray(0, end + 1)
}

function lastLines(bytes: Buffer, count: number): Buffer {
  if (count === 0) return bytes.subarray(0, 0)
  let start = bytes.length - 1
  for (let line = 0; line < count; line++) {
    if (start <= 0) return bytes
    start = bytes.lastIndexOf(LINE_FEED, start - 1)
    if (start < 0) return bytes
  }
  return bytes.subarray(start + 1)
}

/** Drops an incomplete UTF-8 character at the end. */
function wholeStart(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(4, bytes.length); back++) {
    const byte = bytes[bytes.length - back] as number
    if ((byte & 0xc0) === 0x80) continue
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return length > back ? bytes.subarray(0, bytes.length - back) : bytes
  }
  return bytes
}

/** Drops an incomplete UTF-8 character at the beginning. */
function wholeEnd(bytes: Buffer): Buffer {
  let skip = 0
  while (skip < Math.min(3, bytes.length) && ((bytes[skip] as number) & 0xc0) === 0x80) skip++
  return bytes.subarray(skip)
}
