/**
 * `spawn-owned`: a `child_process.spawn` whose caller owns everything the command causes.
 *
 * @packageDocumentation
 */

import type {
  ChildProcess,
  ChildProcessByStdio,
  ChildProcessWithoutNullStreams,
  SpawnOptions,
} from 'node:child_process'

// ---- spawning -------------------------------------------------------------------------------------------------------

/**
 * Starts a command like `child_process.spawn`: same arguments, same events, same errors. In addition the caller owns the
 * whole tree: it is ended as one by {@link OwnedProcess.cancel}, when the root exits, and when the bot is gone.
 *
 * @example
 * ```ts
 * const agent = spawnOwned('claude', ['-p', prompt], { timeoutMs: 10 * 60_000 })
 * agent.stdout.pipe(process.stdout)
 * const { reason, exitCode } = await agent.wait()
 * ```
 *
 * @throws with `code` `ERR_OWNED_…` if the keeper cannot be run: then nothing was started. Invalid arguments throw Node's own
 * errors. A command that cannot be started emits `error`, as with `child_process.spawn`.
 */
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptions & { stdio?: 'pipe' | 'overlapped' | undefined },
): OwnedProcessWithStreams
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptions & { stdio?: 'pipe' | 'overlapped' | undefined },
): OwnedProcessWithStreams
export function spawnOwned(command: string, args?: readonly string[] | null): OwnedProcessWithStreams
export function spawnOwned(
  command: string,
  args?: readonly string[] | null,
  options?: SpawnOwnedOptions,
): OwnedProcess
export function spawnOwned(command: string, options?: SpawnOwnedOptions): OwnedProcess

/** Everything `child_process.spawn` takes, with the same meaning, and what ownership adds. */
export interface SpawnOwnedOptions extends SpawnOptions {
  /** Names the run. Letters, digits and `. _ -`, at most 128. Default: a fresh UUID. */
  runId?: string | undefined
  /** The chat session, job or turn this run belongs to, for {@link cancel}. */
  sessionId?: string | undefined
  /** Which kind of agent or backend this is; informational. */
  backendId?: string | undefined
  /** Free labels (`agent`, `company` …), for {@link cancel} and for operators. */
  labels?: Record<string, string> | undefined
  /** A name several runs share, for {@link cancel}. */
  scopeKey?: string | undefined
  /** What people see in `ps` and in messages, at most 120 characters. Default: command and arguments. */
  commandPreview?: string | undefined
  /** Overall deadline in ms, counted from the moment the command runs. 0: off (default). */
  timeoutMs?: number | undefined
  /** Time between the first signal and SIGKILL, in ms, whenever the tree is ended. Default 5000. */
  graceMs?: number | undefined
  /**
   * The bot is gone, however it went: end the tree (`'kill'`, default) or let it run (`'keep'`).
   * A tree whose bot is gone gets at most 1.5 s of grace.
   */
  onOwnerExit?: 'kill' | 'keep' | undefined
  /** The root has exited by itself and descendants are alive: end them (`'kill'`, default) or let them run (`'keep'`). */
  onLeaderExit?: 'kill' | 'keep' | undefined
}

/** A `ChildProcess` that owns its tree. `instanceof ChildProcess` holds. */
export interface OwnedProcess extends ChildProcess {
  /** The run's id, as given or made up. */
  readonly runId: string
  /** As given to {@link spawnOwned}. */
  readonly sessionId: string | undefined
  readonly backendId: string | undefined
  readonly scopeKey: string | undefined
  readonly labels: Readonly<Record<string, string>>
  readonly state: RunState
  /**
   * Resolves once, when no process of the tree exists any more (or what is left could not be ended, see
   * {@link RunExit.survivors}). Never rejects.
   */
  wait(): Promise<RunExit>
  /**
   * Ends the whole tree: `signal` to every member, SIGKILL after `graceMs` to what is left. Resolves as {@link wait} does.
   * Safe to call any number of times; a second call may shorten the grace but never prolongs it.
   */
  cancel(options?: CancelOptions): Promise<RunExit>
  /** `await using`: cancels the run and waits until its tree is gone. */
  [Symbol.asyncDispose](): Promise<void>
}

/** What `spawnOwned` returns when all three standard streams are pipes. */
export type OwnedProcessWithStreams = OwnedProcess & ChildProcessWithoutNullStreams

/** An {@link OwnedProcess} with the given streams. */
export type OwnedProcessByStdio<
  I extends import('node:stream').Writable | null,
  O extends import('node:stream').Readable | null,
  E extends import('node:stream').Readable | null,
> = OwnedProcess & ChildProcessByStdio<I, O, E>

/**
 * `starting` until the command runs, `running` until its end begins, `exiting` while the tree is being ended, `exited` when
 * it is extinct.
 */
export type RunState = 'starting' | 'running' | 'exiting' | 'exited'

/** Why a run ended. */
export type TerminationReason =
  /** The root exited by itself, with a code. */
  | 'exit'
  /** A signal ended the root, and it was not sent by ending the run. */
  | 'signal'
  | 'manual-cancel'
  | 'overall-timeout'
  | 'no-output-timeout'
  /** The command could not be started. */
  | 'spawn-error'
  /** The root ended by itself, but a descendant had left its session and lived on. It was ended too. */
  | 'ownership-escape'
  /** The bot had gone. */
  | 'owner-exit'
  | 'shutdown'
  /** The keeper was killed; what could be proven to belong to the run was ended from outside. */
  | 'lost'

/** How a run ended, in one piece. */
export interface RunExit {
  runId: string
  reason: TerminationReason
  /** The root's exit code; `null` if a signal ended it, or if it is not known. */
  exitCode: number | null
  signal: NodeJS.Signals | null
  /** From the start of the command until the tree was extinct. */
  durationMs: number
  timedOut: boolean
  noOutputTimedOut: boolean
  /** One sentence for people, such as `turn timed out after 30s`. */
  message: string
  /** Descendants that had left the session when the root ended by itself, and were ended by us. */
  escaped: ProcessInfo[]
  /** What could not be ended, each with the reason. Empty: verified, nothing of the tree exists. */
  survivors: ProcessInfo[]
}

/** A process in a report. */
export interface ProcessInfo {
  pid: number
  /** With the pid, names this process and no later one with the same number. */
  startToken: string
  /** Its name as the kernel knows it. */
  command: string
  /** Why it is in the report. */
  why: string
}

// ---- cancelling -----------------------------------------------------------------------------------------------------

/**
 * Ends runs by id, by process or by filter, and resolves when their trees are gone.
 *
 * A filter without a criterion (`{}`, `{ labels: {} }`) rejects with `ERR_OWNED_EMPTY_FILTER`: it never means "everything".
 */
export function cancel(target: RunTarget, options?: CancelOptions): Promise<CancelResult>

/** A run id, a process, or all runs that match every criterion of a filter. */
export type RunTarget = string | OwnedProcess | RunFilter

export interface RunFilter {
  runId?: string | undefined
  sessionId?: string | undefined
  scopeKey?: string | undefined
  pid?: number | undefined
  /** Runs that have all of these labels. */
  labels?: Record<string, string> | undefined
}

export interface CancelOptions {
  /** Default: the run's own `graceMs`. */
  graceMs?: number | undefined
  /** The first signal. Default SIGTERM. SIGKILL skips the grace. */
  signal?: NodeJS.Signals | undefined
  /** What {@link RunExit.reason} is to say. Default `manual-cancel`. */
  reason?: TerminationReason | undefined
}

export interface CancelResult {
  /** `already-exited`: the target's root had exited by itself before the cancel could reach it. */
  outcome: 'cancelled' | 'already-exited' | 'not-found'
  exits: RunExit[]
}
