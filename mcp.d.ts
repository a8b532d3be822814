/**
 * The stdio client transport of `@modelcontextprotocol/sdk` over owned runs: change the import, keep the code. A server is gone, with
 * everything it has started, when `close()` resolves, when it crashes, and when the bot is gone. See `docs/mcp.md`.
 *
 * @example
 * ```ts
 * import { Client } from '@modelcontextprotocol/sdk/client/index.js'
 * import { StdioClientTransport } from 'spawn-owned/mcp'
 *
 * const client = new Client({ name: 'bot', version: '1.0.0' })
 * await client.connect(new StdioClientTransport({ command: 'npx', args: ['-y', '@modelcontextprotocol/server-everything'] }))
 * ```
 *
 * @packageDocumentation
 */
import type { IOType } from 'node:child_process'
import type { Stream } from 'node:stream'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js'
import type { OwnedProcess, OwnershipOptions, SpawnOwnedOptions, Supervisor } from './index.js'

/** Those of the SDK, with the same meaning, and what ownership adds. */
export interface StdioServerParameters
  extends OwnershipOptions,
    Pick<SpawnOwnedOptions, 'containment' | 'limits'> {
  command: string
  args?: string[] | undefined
  /** In addition to what the SDK lets a server inherit: `HOME`, `PATH` and a few others, see its `getDefaultEnvironment()`. */
  env?: Record<string, string> | undefined
  /** Default `'inherit'`. */
  stderr?: IOType | Stream | number | undefined
  cwd?: string | undefined
  /** The size in bytes that a message must not exceed. If one does, that is an error, and the transport closes. Default: the SDK's. */
  maxBufferSize?: number | undefined
  /** Who owns the run. Default: the default supervisor. */
  supervisor?: Pick<Supervisor, 'spawnOwned'> | undefined
  /** How long the server may take to leave by itself when its stdin was closed, in ms. Then it is cancelled. Default 2000. */
  closeMs?: number | undefined
  /**
   * What becomes of the rest when the command exits with 0 and others still run. `'keep'` (default): it was a wrapper, and they go on
   * serving until they close stdout. `'kill'`: it was the server, and they are ended. A command that fails is the end in either case.
   */
  onLeaderExit?: 'kill' | 'keep' | undefined
}

/** A server in a run of its own. */
export class StdioClientTransport implements Transport {
  constructor(server: StdioServerParameters)
  onclose?: (() => void) | undefined
  onerror?: ((error: Error) => void) | undefined
  onmessage?: ((message: JSONRPCMessage) => void) | undefined
  /** The run underneath: `cancel()`, `wait()`, `usage()` … The last one, if there is none now; `null` before the first. */
  get run(): OwnedProcess | null
  /** That of the command; `null` if it is not running. */
  get pid(): number | null
  /** There from the beginning if `stderr` is `'pipe'` or `'overlapped'`, so that nothing is missed; else `null`. */
  get stderr(): Stream | null
  /**
   * Starts the server.
   *
   * Rejects with the system's error if the command cannot be started (`ENOENT` …), with what `spawnOwned` throws, and with
   * `ERR_OWNED_PEER_MISSING` if `@modelcontextprotocol/sdk` is not installed. Nothing runs then.
   */
  start(): Promise<void>
  /** Resolves when the message was handed over to the system: who sends faster than the server reads waits. Rejects if it never is. */
  send(message: JSONRPCMessage): Promise<void>
  /**
   * Closes the server's stdin, gives it `closeMs` to leave, and cancels what is left: SIGTERM, `graceMs`, SIGKILL. Resolves when nothing of
   * its tree exists, after `onclose`.
   *
   * Rejects with `ERR_OWNED_CANCEL_FAILED` if something could not be ended; the error names it.
   */
  close(): Promise<void>
}
