// JSON-RPC over stdio: one message per line, as UTF-8. The framing of MCP and ACP.
//
// The SDKs check every message, so this code only checks that a line is one.

/** A message of the protocol. This package does not read it. */
export type Message = object

/** The limit for one message, as in the SDKs. */
const MAX_BUFFER_SIZE = 10 * 1024 * 1024
const LINE_END = 0x0a

/** Splits the output of a server into messages. The interface is that of the MCP SDK. */
export class ReadBuffer {
  readonly #limit: number
  #chunks: Buffer[] = []
  /** How many chunks at the start contain no line end. */
  #searched = 0
  #length = 0

  constructor({ maxBufferSize }: { maxBufferSize?: number | undefined } = {}) {
    this.#limit = maxBufferSize ?? MAX_BUFFER_SIZE
  }

  /** @throws If the unread output would exceed the limit. Then all of it is dropped. */
  append(chunk: Buffer): void {
    if (this.#length + chunk.length > this.#limit) {
      this.clear()
      throw new Error(`ReadBuffer exceeded maximum size of ${this.#limit} bytes`)
    }
    this.#chunks.push(chunk)
    this.#length += chunk.length
  }

  /**
   * Returns the next message, or `null` if no complete line is left.
   *
   * @throws If the line is not a message. The next call continues with the next line.
   */
  readMessage(): Message | null {
    for (;;) {
      const line = this.#readLine()
      if (line === null) return null
      if (line.trim() !== '') return parse(line)
    }
  }

  clear(): void {
    this.#chunks = []
    this.#searched = 0
    this.#length = 0
  }

  #readLine(): string | null {
    for (; this.#searched < this.#chunks.length; this.#searched++) {
      const chunk = this.#chunks[this.#searched] as Buffer
      const end = chunk.indexOf(LINE_END)
      if (end < 0) continue
      const line = Buffer.concat([...this.#chunks.slice(0, this.#searched), chunk.subarray(0, end)])
      this.#chunks = [chunk.subarray(end + 1), ...this.#chunks.slice(this.#searched + 1)]
      this.#searched = 0
      this.#length -= line.length + 1
      return line.toString('utf8').replace(/\r$/, '')
    }
    return null
  }
}

function parse(line: string): Message {
  const message = parsed(line)
  const isMessage =
    typeof message === 'object' && message !== null && 'jsonrpc' in message && message.jsonrpc === '2.0'
  if (isMessage) return message
  throw new Error(`Expected a JSON-RPC message on stdout, got ${JSON.stringify(line.slice(0, 200))}`)
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return undefined
  }
}

export function serializeMessage(message: Message): string {
  return `${JSON.stringify(message)}\n`
}
