/**
 * The stdio client transport of the MCP SDK, with owned runs: change the import, keep the code.
 *
 * It works with `@modelcontextprotocol/client` (version 2) and `@modelcontextprotocol/sdk` (version
 * 1).
 *
 * The server and all processes that it started are gone when `close()` resolves, after the server
 * crashes, and after the bot is gone. See `docs/mcp.md`.
 *
 * @example
 * ```ts
 * import { Client } from '@modelcontextprotocol/client'
 * import { StdioClientTransport } from 'spawn-owned/mcp'
 *
 * const client = new Client({ name: 'bot', version: '1.0.0' })
 * const args = ['-y', '@modelcontextprotocol/server-everything']
 * await client.connect(new StdioClientTransport({ command: 'npx', args }))
 * ```
 *
 * @packageDocumentation
 */
import type { IOType } from 'node:child_process'
import type { Stream } from 'node:stream'
import type { OwnedProcess, OwnershipOptions, SpawnOwnedOptions, Supervisor } from '../index.js'

/** A message of the protocol, with the types of both versions of the SDK. */
export type JSONRPCMessage =
  | { jsonrpc: '2.0'; id: string | number; method: string; params?: MessageParams | undefined }
  | { jsonrpc: '2.0'; method: string; params?: MessageParams | undefined }
  | { jsonrpc: '2.0'; id: string | number; result: { [key: string]: unknown } }
  | { jsonrpc: '2.0'; id?: string | number | undefined; error: MessageError }

/** The parameters of a request or notification. */
export interface MessageParams {
  [key: string]: unknown
}

/** The error of a response. */
export interface MessageError {
  code: number
  message: string
  data?: unknown
}

/** The parameters of the SDK, with the same meaning, and the options of ownership. */
export interface StdioServerParameters
  extends OwnershipOptions,
    Pick<SpawnOwnedOptions, 'containment' | 'limits'> {
  command: string
  args?: string[] | undefined
  /**
   * Variables in addition to the SDK's `getDefaultEnvironment()`: `HOME`, `PATH` and a few others.
   */
  env?: Record<string, string> | undefined
  /** The stderr of the server, as in `stdio` of Node's `spawn`. Default `'inherit'`. */
  stderr?: IOType | Stream | number | undefined
  cwd?: string | undefined
  /**
   * The largest message in bytes. A larger one is an error and closes the transport. Default: the
   * SDK's.
   */
  maxBufferSize?: number | undefined
  /** The supervisor that owns the run. Default: the default supervisor. */
  supervisor?: Pick<Supervisor, 'spawnOwned'> | undefined
  /**
   * Time in ms for the server to exit after its stdin was closed. Then it is cancelled. Default
   * 2000.
   */
  closeMs?: number | undefined
  /**
   * What happens to the tree when the command exits with code 0 and other members still run.
   * Default `'keep'`.
   *
   * - `'keep'`: the command was a wrapper. The others serve on until they close stdout.
   * - `'kill'`: the command was the server. The others are terminated.
   *
   * If the command fails, the tree is terminated in both cases.
   */
  onLeaderExit?: 'kill' | 'keep' | undefined
}

/** A client transport that starts its server as an owned run. It has the SDK's type `Transport`. */
export class StdioClientTransport {
  constructor(server: StdioServerParameters)
  onclose?: (() => void) | undefined
  onerror?: ((error: Error) => void) | undefined
  onmessage?: ((message: JSONRPCMessage) => void) | undefined
  /**
   * The run of the server, or the last run if the server is not running. `null` before the first
   * start.
   */
  get run(): OwnedProcess | null
  /** The PID of the command. `null` if the server is not running. */
  get pid(): number | null
  /**
   * The stderr stream if `stderr` is `'pipe'` or `'overlapped'`, else `null`. It exists before
   * `start()`, so no output is missed.
   */
  get stderr(): Stream | null
  /**
   * Starts the server.
   *
   * Rejects with `ENOENT`, `EACCES` … if the command cannot be started, with the errors of
   * `spawnOwned`, and with `ERR_OWNED_PEER_MISSING` if neither version of the SDK is installed. Then
   * no process runs.
   */
  start(): Promise<void>
  /**
   * Sends a message. Resolves when the operating system has accepted it, so a sender that is faster
   * than the server waits. Rejects if the message cannot be written.
   */
  send(message: JSONRPCMessage): Promise<void>
  /**
   * Stops the server. Resolves when its tree is gone, after `onclose`.
   *
   * It closes the server's stdin and waits up to `closeMs` for the server to exit. Then it cancels
   * the run: SIGTERM, `graceMs`, SIGKILL.
   *
   * Rejects with `ERR_OWNED_CANCEL_FAILED` if a process could not be terminated. The error names
   * it.
   */
  close(): Promise<void>
}
