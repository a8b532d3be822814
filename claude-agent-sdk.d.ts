/**
 * The process-spawn hook of `@anthropic-ai/claude-agent-sdk` over owned runs: what the agent starts (tool shells, MCP servers, dev
 * servers, wherever they went) is ended with it, and when the bot is gone. See `docs/claude-agent-sdk.md`.
 *
 * @example
 * ```ts
 * import { query } from '@anthropic-ai/claude-agent-sdk'
 * import { spawnClaudeCodeProcess } from 'spawn-owned/claude-agent-sdk'
 *
 * for await (const message of query({ prompt, options: { spawnClaudeCodeProcess } })) console.log(message)
 * ```
 *
 * @packageDocumentation
 */
import type { EventEmitter } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import type { OwnedProcess, OwnershipOptions, SpawnOwnedOptions, Supervisor } from './index.js'

/** For the SDK's option of the same name, as it is. The runs belong to the default supervisor. */
export const spawnClaudeCodeProcess: Spawner

/** Makes one with options of its own: for one query, one chat, or the whole bot. */
export function createSpawner(options?: SpawnerOptions): Spawner

/**
 * What the SDK calls to start an agent.
 *
 * @throws when `spawnOwned` does: nothing was started then. An executable that cannot be run emits `error`.
 */
export type Spawner = (options: SpawnOptions) => AgentProcess

/** What a run is known by, and its limits; and how it is ended. */
export interface SpawnerOptions extends OwnershipOptions, Pick<SpawnOwnedOptions, 'containment' | 'limits'> {
  /** Who owns the runs. Default: the default supervisor. */
  supervisor?: Pick<Supervisor, 'spawnOwned'> | undefined
  /**
   * That of the `AbortController` which the SDK has. With it an abort ends the whole tree at once (SIGTERM, `graceMs`, SIGKILL), with
   * the reason `manual-cancel`. Without it the SDK closes the agent's stdin first, and tells nobody of the abort for 2 s.
   */
  signal?: AbortSignal | undefined
  /**
   * What the agent writes to stderr. The SDK's own option of this name has an effect on processes only which it has started itself.
   * Default: discarded.
   */
  stderr?: ((text: string) => void) | undefined
  /** The run of an agent that was just started: `cancel()`, `wait()`, `usage()` … */
  onRun?: ((run: OwnedProcess) => void) | undefined
}

/** What the SDK says of the process it wants: its `SpawnOptions`. */
export interface SpawnOptions {
  command: string
  args: string[]
  cwd?: string | undefined
  env: { [name: string]: string | undefined }
  /** Fires when the SDK has been aborted and has given the agent its time to leave. */
  signal: AbortSignal
}

/** An agent and everything it has started, as one process: the SDK's `SpawnedProcess`. */
export interface AgentProcess extends EventEmitter {
  /** The run underneath. Not in the SDK. */
  readonly run: OwnedProcess
  readonly stdin: Writable
  readonly stdout: Readable
  /** Whether {@link AgentProcess.kill} or an abort has asked for its end. */
  readonly killed: boolean
  /** That of the agent, when nothing of its tree exists any more; `null` until then. */
  readonly exitCode: number | null
  readonly signalCode: NodeJS.Signals | null
  /**
   * SIGTERM and SIGKILL end the whole tree: the one after its grace, the other at once. Any other signal goes to the agent alone.
   * Returns false if the tree is gone.
   */
  kill(signal?: NodeJS.Signals): boolean
  /** `exit` when nothing of its tree exists any more. `error` if it could not be started, or signalled. */
  on(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): this
  on(event: 'error', listener: (error: Error) => void): this
  once(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): this
  once(event: 'error', listener: (error: Error) => void): this
  off(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): this
  off(event: 'error', listener: (error: Error) => void): this
}
