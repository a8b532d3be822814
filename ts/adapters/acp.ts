// Starts an agent of the Agent Client Protocol as an owned run.

import { ReadableStream, type ReadableStreamDefaultController, WritableStream } from 'node:stream/web'
import type { OwnedProcess, RunExit } from '../../index.js'
import type { AgentConnection, AgentParameters } from '../../types/acp.js'
import { spawnOwned } from '../index.js'
import { ACP_AGENT } from '../util/option-keys.js'
import { refuseMisspelled } from '../util/read-options.js'
import { duration } from '../util/validation.js'
import { endStdioServer } from './end-stdio-server.js'
import { type Message, ReadBuffer, serializeMessage } from './json-rpc-lines.js'

const CLOSE_MS = 2000

/** The answer to a line that is not a message, as in the SDK. */
const PARSE_ERROR = { jsonrpc: '2.0', id: null, error: { code: -32700, message: 'Parse error' } }

export function startAgent(parameters: AgentParameters): AgentConnection {
  return new Agent(parameters)
}

class Agent {
  static readonly name = 'AgentConnection'

  readonly run: OwnedProcess
  readonly stream: AgentConnection['stream']
  readonly closed: Promise<RunExit>
  readonly #closeMs: number
  #end: Promise<RunExit> | undefined

  constructor(parameters: AgentParameters) {
    const given = { ...parameters }
    refuseMisspelled(given, 'startAgent', ACP_AGENT, 'agent')
    const { command, args = [], stderr, maxMessageBytes, closeMs, supervisor, ...rest } = given
    this.#closeMs = duration(closeMs, 'agent.closeMs') ?? CLOSE_MS
    const spawn = supervisor?.spawnOwned ?? spawnOwned
    this.run = spawn(command, args, {
      commandPreview: [command, ...args].join(' '),
      onLeaderExit: 'keep',
      ...rest,
      stdio: ['pipe', 'pipe', stderr ?? 'inherit'],
      windowsHide: true,
    })
    this.closed = this.run.wait()
    this.stream = {
      readable: this.#messages(maxMessageBytes),
      writable: this.#sink(),
    } as unknown as AgentConnection['stream']
    // A command that exits with 0 can be a wrapper, and its agent continues.
    this.run.once('exit', (code) => code !== 0 && void this.close())
  }

  close(): Promise<RunExit> {
    this.#end ??= endStdioServer(this.run, this.#closeMs)
    return this.#end
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /** The messages of the agent. Reading is paused while the client does not take them. */
  #messages(maxBufferSize: number | undefined): ReadableStream<Message> {
    const { run } = this
    const { stdout } = run
    const buffer = new ReadBuffer({ maxBufferSize })
    let isOver = false
    return new ReadableStream<Message>({
      start: (controller) => {
        const finish = (error?: Error) => {
          if (isOver) return
          isOver = true
          if (error) controller.error(error)
          else controller.close()
          // The agent must not block on a full pipe while it exits.
          stdout?.resume()
          void this.close()
        }
        run.once('error', finish)
        stdout?.once('error', finish).once('end', () => finish())
        stdout?.on('data', (chunk: Buffer) => {
          if (isOver) return
          try {
            buffer.append(chunk)
          } catch (error) {
            finish(error as Error)
            return
          }
          this.#read(buffer, controller)
          if ((controller.desiredSize ?? 1) <= 0) stdout.pause()
        })
      },
      pull: () => void stdout?.resume(),
      cancel: () => {
        isOver = true
        stdout?.resume()
        void this.close()
      },
    })
  }

  #read(buffer: ReadBuffer, controller: ReadableStreamDefaultController<Message>): void {
    for (;;) {
      try {
        const message = buffer.readMessage()
        if (message === null) return
        controller.enqueue(message)
      } catch {
        this.run.stdin?.write(serializeMessage(PARSE_ERROR))
      }
    }
  }

  /** Writes messages to the agent. A write waits until the operating system has accepted it. */
  #sink(): WritableStream<Message> {
    const { stdin } = this.run
    // Each write reports its own error.
    stdin?.on('error', () => {})
    return new WritableStream<Message>({
      write: (message) =>
        new Promise<void>((resolve, reject) => {
          stdin?.write(serializeMessage(message), (error) => (error ? reject(error) : resolve()))
        }),
      close: () => void this.close(),
      abort: () => void this.close(),
    })
  }
}
