/**
 * The process-spawn hook of `@anthropic-ai/claude-agent-sdk`, with owned runs.
 *
 * All processes that the agent starts (tool shells, MCP servers, dev servers) are terminated with
 * it, and when the bot is gone. See `docs/claude-agent-sdk.md`.
 *
 * @example
 * ```ts
 * import { query } from '@anthropic-ai/claude-agent-sdk'
 * import { spawnClaudeCodeProcess } from 'spawn-owned/claude-agent-sdk'
 *
 * const prompt = 'fix the tests'
 * for await (const message of query({ prompt, options: { spawnClaudeCodeProcess } })) console.log(message)
 * ```
 *
 * @packageDocumentation
 */
import type { EventEmitter } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import type { OwnedProcess, OwnershipOptions, SpawnOwnedOptions, Supervisor } from '../index.js'

/** The value for the SDK option of the same name. The default supervisor owns the runs. */
export const spawnClaudeCodeProcess: Spawner

/** Creates a spawner with its own options: for one query, one chat, or the whole bot. */
export function createSpawner(options?: SpawnerOptions): Spawner

/**
 * The function that the SDK calls to start an agent.
 *
 * @throws The errors of `spawnOwned`. Then no process was started. An executable that cannot be run
 * emits `error`.
 */
export type Spawner = (options: SpawnOptions) => AgentProcess

/** Options of {@link createSpawner}. */
export interface SpawnerOptions extends OwnershipOptions, Pick<SpawnOwnedOptions, 'containment' | 'limits'> {
  /** The supervisor that owns the runs. Default: the default supervisor. */
  supervisor?: Pick<Supervisor, 'spawnOwned'> | undefined
  /**
   * The signal of the `AbortController` that the SDK gets.
   *
   * With it, an abort terminates the tree at once (SIGTERM, `graceMs`, SIGKILL), with the reason
   * `manual-cancel`. Without it, the SDK first closes the agent's stdin and passes the abort on
   * after 2 s.
   */
  signal?: AbortSignal | undefined
  /**
   * Called with the text that the agent writes to stderr. Default: the text is discarded.
   *
   * The SDK option of the same name has no effect here: it only applies to processes that the SDK
   * starts itself.
   */
  stderr?: ((text: string) => void) | undefined
  /** Called with the run of each agent, right after its start. */
  onRun?: ((run: OwnedProcess) => void) | undefined
}

/** The SDK's description of the process to start: its `SpawnOptions`. */
export interface SpawnOptions {
  command: string
  args: string[]
  cwd?: string | undefined
  env: { [name: string]: string | undefined }
  /** Aborted after the SDK was aborted and the agent had time to exit. */
  signal: AbortSignal
}

/** An agent with its whole tree, in the shape of the SDK's `SpawnedProcess`. */
export interface AgentProcess extends EventEmitter {
  /** The run of the agent. The SDK's type does not have it. */
  readonly run: OwnedProcess
  readonly stdin: Writable
  readonly stdout: Readable
  /** Whether {@link AgentProcess.kill} or an abort has started the termination. */
  readonly killed: boolean
  /**
   * The exit code of the agent, once its tree is gone. `null` before, and if a signal killed it.
   */
  readonly exitCode: number | null
  /** The signal that killed the agent, once its tree is gone. Else `null`. */
  readonly signalCode: NodeJS.Signals | null
  /**
   * Signals the agent. Returns false if the tree is gone.
   *
   * SIGTERM terminates the whole tree. SIGKILL kills the whole tree at once. Any other signal goes
   * only to the agent.
   */
  kill(signal?: NodeJS.Signals): boolean
  /** `exit`: the tree is gone. `error`: the agent could not be started or signalled. */
  on(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): this
  on(event: 'error', listener: (error: Error) => void): this
  once(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): this
  once(event: 'error', listener: (error: Error) => void): this
  off(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): this
  off(event: 'error', listener: (error: Error) => void): this
}
