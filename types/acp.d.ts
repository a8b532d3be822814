/**
 * A connection to an agent of the Agent Client Protocol (ACP), over an owned run.
 *
 * The agent and all processes that it starts (tool shells, MCP servers, dev servers) are gone when
 * `close()` resolves, after the agent crashes, and after the bot is gone. It works with
 * `@agentclientprotocol/sdk`, and loads nothing of it. See `docs/acp.md`.
 *
 * @example
 * ```ts
 * import { client, methods, PROTOCOL_VERSION } from '@agentclientprotocol/sdk'
 * import { startAgent } from 'spawn-owned/acp'
 *
 * const agent = startAgent({ command: 'gemini', args: ['--acp'] })
 * await client({ name: 'bot' }).connectWith(agent.stream, async (connection) => {
 *   const protocolVersion = PROTOCOL_VERSION
 *   await connection.request(methods.agent.initialize, { protocolVersion, clientCapabilities: {} })
 * })
 * await agent.close()
 * ```
 *
 * @packageDocumentation
 */
import type { IOType } from 'node:child_process'
import type { Stream } from 'node:stream'
import type { OwnedProcess, OwnershipOptions, RunExit, SpawnOwnedOptions, Supervisor } from '../index.js'

/**
 * Starts an agent. The connection can be used at once.
 *
 * @throws The errors of `spawnOwned`. Then no process was started. If the command cannot be
 * started, `stream.readable` fails with `ENOENT`, `EACCES` …, and `closed` resolves with that error.
 */
export function startAgent(agent: AgentParameters): AgentConnection

/** How to start an agent: its command, and the options of ownership. */
export interface AgentParameters
  extends OwnershipOptions,
    Pick<SpawnOwnedOptions, 'containment' | 'cwd' | 'env' | 'limits' | 'shell'> {
  command: string
  args?: readonly string[] | undefined
  /** The stderr of the agent, as in `stdio` of Node's `spawn`. Default `'inherit'`. */
  stderr?: IOType | Stream | number | undefined
  /** The largest message in bytes. A larger one ends the connection. Default 10 MiB. */
  maxMessageBytes?: number | undefined
  /** The supervisor that owns the run. Default: the default supervisor. */
  supervisor?: Pick<Supervisor, 'spawnOwned'> | undefined
  /**
   * Time in ms for the agent to exit after its stdin was closed. Then it is cancelled. Default
   * 2000.
   */
  closeMs?: number | undefined
  /**
   * What happens to the tree when the command exits with code 0 and other members still run.
   * Default `'keep'`.
   *
   * - `'keep'`: the command was a wrapper. The others serve on until they close stdout.
   * - `'kill'`: the command was the agent. The others are terminated.
   */
  onLeaderExit?: 'kill' | 'keep' | undefined
}

/** A running agent. */
export interface AgentConnection {
  /** The run of the agent: `cancel()`, `wait()`, `usage()` … */
  readonly run: OwnedProcess
  /**
   * The messages of the connection, for `connect` and `connectWith` of the SDK.
   *
   * When the SDK closes the connection, or the agent closes its stdout or fails, the agent is ended
   * as with {@link AgentConnection.close}.
   */
  readonly stream: AgentStream
  /** Resolves when no process of the agent exists. Never rejects. */
  readonly closed: Promise<RunExit>
  /**
   * Ends the agent. Resolves when its tree is gone. Never rejects.
   *
   * It closes the agent's stdin and waits up to `closeMs` for the agent to exit. Then it cancels
   * the run: SIGTERM, `graceMs`, SIGKILL.
   */
  close(): Promise<RunExit>
  /** For `await using`: {@link AgentConnection.close}. */
  [Symbol.asyncDispose](): Promise<void>
}

/** A pair of message streams: the SDK's `Stream`. */
export interface AgentStream {
  /** Messages from the agent. */
  readable: ReadableStream<AgentMessage>
  /** Messages to the agent. */
  writable: WritableStream<AgentMessage>
}

/** A JSON-RPC message: the SDK's `AnyMessage`. */
export type AgentMessage =
  | { jsonrpc: '2.0'; id: string | number | null; method: string; params?: unknown }
  | { jsonrpc: '2.0'; method: string; params?: unknown }
  | { jsonrpc: '2.0'; id: string | number | null; result: unknown }
  | { jsonrpc: '2.0'; id: string | number | null; error: AgentError }

/** The error of a response. */
export interface AgentError {
  code: number
  message: string
  data?: unknown
}
