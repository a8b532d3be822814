/**
 * `spawn-owned`: a `child_process.spawn` whose caller owns every process that the command starts.
 *
 * **Words.** The *bot* is the process that uses this package. A *run* is one command with all its
 * descendants. The command is the *root process* of the run. All processes of the run are its
 * *tree*, each of them is a *member*. A *keeper* is a small helper process that owns one run. To
 * *terminate* a tree means: send SIGTERM to every member, wait up to `graceMs`, send SIGKILL to the
 * members that are left, and repeat until the tree is empty.
 *
 * **Default supervisor.** The functions of this module use a default supervisor. The first call of
 * one of them creates it. Its registry is the file `$SPAWN_OWNED_REGISTRY` or, without that
 * variable, `data/process-registry.json` in the directory that is current at that first call.
 * {@link createSupervisor} creates other supervisors.
 *
 * **Units.** All durations are milliseconds. All points in time are milliseconds since the epoch,
 * as `Date.now()` returns them. Every error has a `code`: `ERR_OWNED_…` or one of Node's codes.
 *
 * **Option objects.** Only own properties with a known key are options. Any other key is an error
 * (`ERR_INVALID_ARG_VALUE`) that suggests the nearest known key, unless the value is `undefined`.
 * The options of {@link spawnOwned} may contain keys of other packages. There, a key is an error
 * only if it differs from a known key by case or by one letter.
 *
 * @packageDocumentation
 */

import type {
  ChildProcess,
  ChildProcessByStdio,
  ChildProcessWithoutNullStreams,
  SpawnOptions,
  StdioNull,
  StdioPipe,
} from 'node:child_process'
import type { EventEmitter } from 'node:events'
import type { Readable, Writable } from 'node:stream'

// ---- spawning -----------------------------------------------------------------------------------

/**
 * Starts a command like `child_process.spawn`, and owns its whole tree.
 *
 * Arguments, events and errors are the same as in Node. In addition the tree is terminated as a
 * whole: by {@link OwnedProcess.cancel}, when the root process exits, and when the bot exits or is
 * killed.
 *
 * @example
 * ```ts
 * import { spawnOwned } from 'spawn-owned'
 *
 * const agent = spawnOwned('claude', ['-p', 'fix the tests'], { timeoutMs: 10 * 60_000 })
 * agent.stdout.pipe(process.stdout)
 * const { reason, exitCode } = await agent.wait()
 * ```
 *
 * @throws An error with `code` `ERR_OWNED_…` if the keeper cannot run, if the registry cannot be
 * written, if the run id is in use, or on Windows if the runtime is not Node. Then no process was
 * started, and the registry contains no entry. Invalid arguments throw Node's own errors. A command
 * that cannot be started emits `error`, as with `child_process.spawn`. No listener is needed if
 * {@link OwnedProcess.wait} is called in the same tick.
 */
export function spawnOwned(
  command: string,
  args?: readonly string[] | null,
  options?: SpawnOwnedOptionsWithPipes,
): OwnedProcessWithStreams
export function spawnOwned(command: string, options?: SpawnOwnedOptionsWithPipes): OwnedProcessWithStreams
/** Starts a command in a terminal, see {@link SpawnOwnedOptions.pty}. */
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptions & { pty: true | PtyOptions },
): OwnedTerminal
/** Starts a command in a terminal, see {@link SpawnOwnedOptions.pty}. */
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptions & { pty: true | PtyOptions },
): OwnedTerminal
// One for each combination of streams, as in Node.
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptionsWithStdioTuple<StdioPipe, StdioPipe, StdioPipe>,
): OwnedProcessByStdio<Writable, Readable, Readable>
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptionsWithStdioTuple<StdioPipe, StdioPipe, StdioPipe>,
): OwnedProcessByStdio<Writable, Readable, Readable>
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptionsWithStdioTuple<StdioPipe, StdioPipe, StdioNull>,
): OwnedProcessByStdio<Writable, Readable, null>
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptionsWithStdioTuple<StdioPipe, StdioPipe, StdioNull>,
): OwnedProcessByStdio<Writable, Readable, null>
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptionsWithStdioTuple<StdioPipe, StdioNull, StdioPipe>,
): OwnedProcessByStdio<Writable, null, Readable>
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptionsWithStdioTuple<StdioPipe, StdioNull, StdioPipe>,
): OwnedProcessByStdio<Writable, null, Readable>
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptionsWithStdioTuple<StdioNull, StdioPipe, StdioPipe>,
): OwnedProcessByStdio<null, Readable, Readable>
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptionsWithStdioTuple<StdioNull, StdioPipe, StdioPipe>,
): OwnedProcessByStdio<null, Readable, Readable>
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptionsWithStdioTuple<StdioPipe, StdioNull, StdioNull>,
): OwnedProcessByStdio<Writable, null, null>
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptionsWithStdioTuple<StdioPipe, StdioNull, StdioNull>,
): OwnedProcessByStdio<Writable, null, null>
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptionsWithStdioTuple<StdioNull, StdioPipe, StdioNull>,
): OwnedProcessByStdio<null, Readable, null>
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptionsWithStdioTuple<StdioNull, StdioPipe, StdioNull>,
): OwnedProcessByStdio<null, Readable, null>
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptionsWithStdioTuple<StdioNull, StdioNull, StdioPipe>,
): OwnedProcessByStdio<null, null, Readable>
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptionsWithStdioTuple<StdioNull, StdioNull, StdioPipe>,
): OwnedProcessByStdio<null, null, Readable>
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptionsWithStdioTuple<StdioNull, StdioNull, StdioNull>,
): OwnedProcessByStdio<null, null, null>
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptionsWithStdioTuple<StdioNull, StdioNull, StdioNull>,
): OwnedProcessByStdio<null, null, null>
/** Starts a command with any other `stdio`. A stream of the result can be `null`. */
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options?: SpawnOwnedOptions,
): OwnedProcess
/** Starts a command with any other `stdio`. A stream of the result can be `null`. */
export function spawnOwned(command: string, options: SpawnOwnedOptions): OwnedProcess
/**
 * Starts a command. `Parameters<typeof spawnOwned>` and mocks use this form: it is the last, as in
 * Node.
 */
export function spawnOwned(command: string, args: readonly string[], options: SpawnOwnedOptions): OwnedProcess

/**
 * Runs a command to its end, and resolves with its exit and its output.
 *
 * It starts the command like {@link spawnOwned} and reads its pipes, so the command never blocks on
 * a full one. Memory is bounded: of a long output the beginning and the end are kept. It resolves
 * when the tree is gone and all output was read.
 *
 * The promise never rejects. A command that cannot be started resolves with `ok: false` and
 * {@link RunExit.error}, and no `error` listener is needed. So do other failures of the start, such
 * as a registry that cannot be written.
 *
 * @example
 * ```ts
 * import { run } from 'spawn-owned'
 *
 * const { ok, stdout, message } = await run('git', ['rev-parse', 'HEAD'], { timeoutMs: 10_000 })
 * if (!ok) throw new Error(`git failed: ${message}`)
 * ```
 *
 * @throws Node's errors for invalid arguments (`TypeError`, `RangeError`), before anything is
 * started. They are mistakes of the caller, so they are thrown and not part of the result.
 */
export function run(
  command: string,
  args?: readonly string[] | null,
  options?: RunOptions,
): Promise<RunResult>
export function run(command: string, options?: RunOptions): Promise<RunResult>

/** Options of {@link run}: those of {@link spawnOwned}, and those of input and output. */
export interface RunOptions extends SpawnOwnedOptions {
  /**
   * What the command reads from stdin, which is closed after it. Default: an empty stdin.
   *
   * A command may exit before it has read all input. If a `Readable` fails, the run is cancelled,
   * and {@link RunExit.error} has the code `ERR_OWNED_INPUT`.
   */
  input?: string | Uint8Array | import('node:stream').Readable | undefined
  /**
   * The most bytes of stdout, and of stderr, to keep. Default 1048576 (1 MiB).
   *
   * Of a longer output the first and the last half are kept, whole characters only. A line
   * `[... 123 bytes omitted ...]` stands between them, if the limits leave room for it.
   */
  maxOutputBytes?: number | undefined
  /** The most lines of stdout, and of stderr, to keep. Default: no limit. */
  maxOutputLines?: number | undefined
}

/** The result of {@link run}. */
export interface RunResult extends RunExit {
  /** The output as UTF-8 text. Empty if stdout is not a pipe. With `pty`: of the terminal. */
  stdout: string
  /** As `stdout`. Empty with `pty`. */
  stderr: string
  /** Whether a part of `stdout` or `stderr` was left out, because of the limits. */
  truncated: boolean
}

/** Options of {@link spawnOwned}: those of `child_process.spawn`, and those of ownership. */
export interface SpawnOwnedOptions extends SpawnOptions {
  /**
   * The id of the run, unique in the registry. 1 to 128 letters, digits and `. _ - : @ +`. It does
   * not begin with a dot. Default: a new UUID.
   */
  runId?: string | undefined
  /** The chat session, job or turn of this run. {@link cancel} can select runs by it. */
  sessionId?: string | undefined
  /** The kind of agent or backend. Only recorded. */
  backendId?: string | undefined
  /** Labels such as `agent` or `company`. {@link cancel} can select runs by them. */
  labels?: Record<string, string> | undefined
  /**
   * A JSON value that the registry entry keeps, at most 4096 bytes and 32 levels.
   * {@link RunRecord.metadata} has it, in every bot.
   */
  metadata?: unknown
  /** A name that several runs share, for {@link cancel} and `replaceExistingScope`. */
  scopeKey?: string | undefined
  /**
   * Terminates the earlier runs with the same `scopeKey`, of all bots, before this run starts.
   * Default false.
   *
   * If such runs exist, this run waits until their trees are gone. Meanwhile its `state` is
   * `starting`: it has streams but no `pid`, and `spawn` is emitted later. A run that is cancelled
   * meanwhile never starts. If an earlier run cannot be terminated, this run emits `error` with
   * `ERR_OWNED_SCOPE_BUSY` and never starts.
   */
  replaceExistingScope?: boolean | undefined
  /**
   * The text that `spawn-owned ps`, the registry and messages show for this run. At most 120
   * characters. Default: the command and its arguments.
   */
  commandPreview?: string | undefined
  /**
   * Overall timeout in ms, from the moment the command runs. 0 means no timeout. Default 0.
   *
   * When it has passed, the tree is terminated with the reason `overall-timeout`. The keeper
   * measures the time, so a busy event loop does not delay it.
   */
  timeoutMs?: number | undefined
  /**
   * Idle timeout in ms: the longest time without output on stdout and stderr. 0 means no timeout.
   * Default 0, because an agent can be silent while it thinks.
   *
   * When it has passed, the tree is terminated with the reason `no-output-timeout`. At least one of
   * stdout and stderr must be a pipe. Unread output counts as output while the bot pauses the
   * stream or is busy. The timeout is never early. It can be late by 2 % of its value, or by 10 %
   * if the bot does not read the streams. The bot measures the time, so with `onOwnerExit: 'keep'`
   * this timeout ends with the bot.
   */
  noOutputTimeoutMs?: number | undefined
  /**
   * Time in ms between the first signal and SIGKILL when the tree is terminated. Default:
   * {@link SupervisorOptions.graceMs}, which is 5000 by default.
   *
   * Windows: the first signal is Ctrl+Break. With `pty` the console is closed instead. If no member
   * shares the bot's console, no member can receive Ctrl+Break, and the tree is killed at once.
   */
  graceMs?: number | undefined
  /**
   * What happens to the tree when the bot exits or is killed. Default `'kill'`.
   *
   * - `'kill'`: the tree is terminated. Its grace is at most 1500 ms.
   * - `'keep'`: the tree runs on until another bot adopts or reaps it, see {@link adopt}.
   *
   * Windows: with `'kill'` the kernel kills the tree at once, without grace. A kept run has no
   * timeouts while it has no bot, and its exit is not recorded.
   */
  onOwnerExit?: 'kill' | 'keep' | undefined
  /**
   * What happens to descendants that are alive after the root process exits by itself. Default:
   * {@link SupervisorOptions.onLeaderExit}, which is `'kill'` by default. In
   * `spawn-owned/child_process` and `spawn-owned/register` it is `'keep'`.
   *
   * - `'kill'`: they are terminated.
   * - `'keep'`: they run on. The run's stdin stays open for those that inherited it. But if
   *   `kill()` ends the root process, they end too: then it did not exit by itself.
   */
  onLeaderExit?: 'kill' | 'keep' | undefined
  /**
   * How the tree is contained. Default `'auto'`.
   *
   * A keeper always owns the tree: no member can leave it, and the keeper terminates the tree when
   * the bot is gone. On Linux the run can have its own cgroup as well. Then no member is lost even
   * if the bot, the keeper and the keeper's parent are killed together, and the members have
   * changed their process group and environment.
   *
   * - `'auto'`: a cgroup if {@link SpawnOwnedOptions.limits} are given. Otherwise a keeper alone,
   *   because it starts faster.
   * - `'keeper'`: never a cgroup.
   * - `'cgroup'`: a cgroup. If none can be created, `spawnOwned` throws `ERR_OWNED_CGROUP` with the
   *   cause and the remedy. It needs cgroup v2, a cgroup in which the bot may write, and under
   *   systemd `Delegate=yes` in the bot's unit.
   *
   * macOS: the keeper follows forks and exits. It can miss a process in rare cases, see
   * `docs/guarantees.md`. `'cgroup'` throws.
   *
   * Windows: always a Job Object, which no member can leave. `'cgroup'` throws.
   */
  containment?: 'auto' | 'keeper' | 'cgroup' | undefined
  /**
   * Limits for the whole tree. Default: none.
   *
   * On Linux they need a cgroup with the matching controllers. If that is not available,
   * `spawnOwned` throws `ERR_OWNED_CGROUP` and starts no process. On Windows they apply to the
   * run's Job Object. On macOS `spawnOwned` throws `ERR_OWNED_CGROUP`.
   */
  limits?: RunLimits | undefined
  /**
   * Starts the command in a terminal instead of with pipes. Default false.
   *
   * The terminal is file descriptor 0, 1 and 2 of the command and the controlling terminal of its
   * session. All other options work as with pipes.
   *
   * - `stdout` is the output of the terminal, `stdin` is its input, `stderr` is `null`.
   * - Both streams have backpressure. Unread output is not lost: it blocks the command. Input waits
   *   until the command reads it.
   * - `stdin.end()` types Ctrl-D. `stdin.write('\x03')` types Ctrl-C.
   * - `stdout` ends when the tree is gone and all output was read. `stdout.destroy()` hangs up the
   *   terminal.
   * - An interactive shell ignores SIGTERM. When the tree is terminated and only such shells are
   *   left, they get SIGHUP.
   *
   * `TERM` is `pty.name` if given, else `TERM` of `env` if given, else `xterm-256color`. The
   * command does not inherit `TERM`, `TERMCAP`, `LINES` and `COLUMNS` of the bot.
   *
   * `spawnOwned` throws and starts no process if this is combined with `stdio` (other than
   * `'pipe'`), `detached` or `onOwnerExit: 'keep'`.
   *
   * Windows: a pseudo-console (ConPTY). It redraws the output, and `stdin.end()` types nothing.
   */
  pty?: boolean | PtyOptions | undefined
}

/** Options with which stdin, stdout and stderr are pipes. */
export type SpawnOwnedOptionsWithPipes = SpawnOwnedOptions & {
  stdio?: 'pipe' | 'overlapped' | StdioPipe[] | undefined
  pty?: false | undefined
}

/** Options with a `stdio` of three elements. They decide which streams are `null`. */
export type SpawnOwnedOptionsWithStdioTuple<
  I extends StdioNull | StdioPipe,
  O extends StdioNull | StdioPipe,
  E extends StdioNull | StdioPipe,
> = SpawnOwnedOptions & { stdio: [I, O, E] }

/** Options that every adapter takes in addition: ids and labels of the run, timeouts and grace. */
export type OwnershipOptions = Pick<
  SpawnOwnedOptions,
  | 'runId'
  | 'sessionId'
  | 'backendId'
  | 'labels'
  | 'scopeKey'
  | 'replaceExistingScope'
  | 'commandPreview'
  | 'timeoutMs'
  | 'noOutputTimeoutMs'
  | 'graceMs'
>

/** Size and kind of a terminal, see {@link SpawnOwnedOptions.pty}. */
export interface PtyOptions {
  /** Width in characters, 1 to 65535. Default 80. */
  cols?: number | undefined
  /** Height in lines, 1 to 65535. Default 24. */
  rows?: number | undefined
  /** The value of `TERM`, a terminfo name. It overrides `env`. */
  name?: string | undefined
}

/** Limits for all members of a run together, see {@link SpawnOwnedOptions.limits}. */
export interface RunLimits {
  /**
   * The most memory, in bytes. Default: no limit.
   *
   * Linux: `memory.max`, rounded down to whole pages. At the limit the kernel reclaims memory, and
   * kills a member if it cannot. Windows: the committed memory of the job. At the limit allocations
   * fail.
   */
  memoryBytes?: number | undefined
  /**
   * The most processes. Default: no limit.
   *
   * Linux: `pids.max`, which counts threads too. At the limit `fork` fails with EAGAIN. Windows:
   * processes only. At the limit no process can be created.
   */
  processes?: number | undefined
}

/** A `ChildProcess` that owns its tree. `instanceof ChildProcess` is true. */
export interface OwnedProcess extends ChildProcess {
  /** The id of the run: the `runId` option or a generated UUID. */
  readonly runId: string
  /** The option of the same name of {@link spawnOwned}. */
  readonly sessionId: string | undefined
  /** The option of the same name of {@link spawnOwned}. */
  readonly backendId: string | undefined
  /** The option of the same name of {@link spawnOwned}. */
  readonly scopeKey: string | undefined
  /** The metadata of the run, see {@link OwnedProcess.update}. `undefined` if there is none. */
  readonly metadata: unknown
  /** The option of the same name of {@link spawnOwned}. Empty if not given. */
  readonly labels: Readonly<Record<string, string>>
  /** The state of the run now. */
  readonly state: RunState
  /**
   * Resolves when no process of the tree exists, with the exit of the run. Never rejects.
   *
   * It also resolves if members could not be terminated: {@link RunExit.survivors} lists them. If
   * the command cannot be started, it resolves after `error` was emitted, with the reason
   * `spawn-error` and {@link RunExit.error}. So `once(child, 'error')` always settles before
   * `wait()`.
   *
   * If you use `wait()`, `exited` or `lines()` in the tick of {@link spawnOwned}, you need no `error`
   * listener: the result has the error. Otherwise an `error` event without a listener throws, as in
   * Node.
   */
  wait(): Promise<RunExit>
  /**
   * Resolves with the result of the root process as soon as it has exited, also while descendants
   * are alive. Never rejects. {@link OwnedProcess.wait} resolves when the whole tree is gone.
   */
  readonly exited: Promise<RootExit>
  /**
   * Returns the lines of an output, as UTF-8 text without line ends (`\n` or `\r\n`).
   *
   * The last line needs no line end. Output that arrives before the first line is requested is not
   * lost. The command blocks while the caller handles a line and the pipe is full. After `break`,
   * unread output stays in the stream, and another call of `lines()` continues with the next line.
   *
   * Use it instead of other readers of the same stream, such as `data` listeners or `pipe`.
   *
   * @example
   * ```ts
   * import { spawnOwned } from 'spawn-owned'
   *
   * const agent = spawnOwned('claude', ['-p', 'fix the tests', '--output-format', 'stream-json'])
   * for await (const line of agent.lines()) console.log(JSON.parse(line))
   * const { ok } = await agent.wait()
   * ```
   *
   * @throws `ERR_OWNED_NO_OUTPUT` if the output is not a pipe.
   */
  lines(options?: LinesOptions): AsyncIterable<string>
  /**
   * Terminates the whole tree. Resolves like {@link OwnedProcess.wait}.
   *
   * Every member gets `signal`. Members that are left after `graceMs` get SIGKILL. Further calls
   * are safe: they can shorten the grace, but never extend it.
   */
  cancel(options?: CancelOptions): Promise<RunExit>
  /**
   * Extends the timeouts of the run by `ms`. Returns false if the run is being terminated or has
   * ended.
   *
   * `timeoutMs` is extended permanently. `noOutputTimeoutMs` is extended once: until the next
   * output.
   *
   * @throws `ERR_OWNED_NO_DEADLINE` if the run has no timeout.
   */
  extendDeadline(ms: number): boolean
  /**
   * Sets, shortens, extends or removes the timeouts of the run. Returns false if the run is being
   * terminated or has ended.
   *
   * `timeoutMs` counts from this call. `noOutputTimeoutMs` counts from this call, or from later
   * output. 0 removes a timeout. A timeout that is not passed stays as it is. The new timeouts work
   * like those of {@link spawnOwned}: on Linux and macOS the keeper measures `timeoutMs`, so it also
   * applies to a kept run whose bot is gone.
   */
  setDeadline(deadline: DeadlineChange): boolean
  /**
   * Changes labels and metadata of the run, in this object and in the registry entry.
   *
   * Labels are merged with the present ones. Metadata replaces the present value, and `null`
   * removes it. Metadata has at most 4096 bytes as JSON.
   */
  update(changes: RunChanges): void
  /**
   * Changes the size of the run's terminal, each 1 to 65535. The foreground process group gets
   * SIGWINCH.
   *
   * @throws `ERR_OWNED_NO_TERMINAL` if the run has no terminal, and `ERR_OWNED_TERMINAL_GONE` if
   * the root process has exited or `stdout` was destroyed.
   */
  resize(cols: number, rows: number): void
  /** Resolves with the resources that the tree uses now. All values are 0 if the tree is gone. */
  usage(): Promise<RunUsage>
  /** For `await using`: cancels the run, and resolves when its tree is gone. */
  [Symbol.asyncDispose](): Promise<void>
}

/** New timeouts in ms, see {@link OwnedProcess.setDeadline}. 0 removes a timeout. */
export interface DeadlineChange {
  timeoutMs?: number | undefined
  noOutputTimeoutMs?: number | undefined
}

/** Changes of a run, see {@link OwnedProcess.update}. */
export interface RunChanges {
  labels?: Record<string, string> | undefined
  metadata?: unknown
}

/** How the root process of a run ended. */
export interface RootExit {
  /** The exit code. `null` if a signal killed the process, or if it is not known. */
  exitCode: number | null
  /** The signal that killed the process, else `null`. */
  signal: NodeJS.Signals | null
  /** Why the command could not be started, if it could not. */
  error?: StartError
}

/** Options of {@link OwnedProcess.lines}. */
export interface LinesOptions {
  /** Which output. Default `stdout`. `both`: the lines of both, in the order in which they arrive. */
  stream?: 'stdout' | 'stderr' | 'both' | undefined
}

/** The resources that the processes of a tree use. */
export interface RunUsage {
  /** The number of living processes. */
  processes: number
  /** User and system CPU time in ms since the start of the run, including exited processes. */
  cpuMs: number
  /** Resident memory of the living processes, in bytes. Shared memory counts once per process. */
  rssBytes: number
}

/** The result of `spawnOwned` when stdin, stdout and stderr are pipes. */
export type OwnedProcessWithStreams = OwnedProcess & ChildProcessWithoutNullStreams

/** An {@link OwnedProcess} with the given streams. */
export type OwnedProcessByStdio<
  I extends Writable | null,
  O extends Readable | null,
  E extends Readable | null,
> = OwnedProcess & ChildProcessByStdio<I, O, E>

/** The result of `spawnOwned` with the `pty` option. */
export type OwnedTerminal = OwnedProcessByStdio<Writable, Readable, null>

/**
 * The state of a run.
 *
 * - `starting`: the command does not run yet.
 * - `running`: the command runs.
 * - `exiting`: the tree is being terminated.
 * - `exited`: the tree is gone.
 */
export type RunState = 'starting' | 'running' | 'exiting' | 'exited'

/** Why a run ended. */
export type TerminationReason =
  /** The root process exited by itself, with an exit code. */
  | 'exit'
  /** A signal killed the root process, and spawn-owned did not send it. */
  | 'signal'
  /** A caller cancelled the run. */
  | 'manual-cancel'
  /** The run reached `timeoutMs`. */
  | 'overall-timeout'
  /** The run reached `noOutputTimeoutMs`. */
  | 'no-output-timeout'
  /** The command could not be started. */
  | 'spawn-error'
  /**
   * The root process ended by itself, but a living descendant had left its session. That descendant
   * was terminated as well. Never on Windows, because no process can leave a Job Object.
   */
  | 'ownership-escape'
  /** The bot had exited or was killed. */
  | 'owner-exit'
  /** {@link shutdown} terminated the run. */
  | 'shutdown'
  /** The keeper was killed. Processes with a proven identity were terminated without it. */
  | 'lost'

/** How a run ended. */
export interface RunExit {
  /** The id of the run. */
  runId: string
  /** Why the run ended. */
  reason: TerminationReason
  /**
   * Whether the root process exited by itself with code 0, whatever it left behind. False for a run
   * that a cancel or a timeout ended.
   */
  ok: boolean
  /** The exit code of the root process. `null` if a signal killed it, or if it is not known. */
  exitCode: number | null
  /** The signal that killed the root process, else `null`. */
  signal: NodeJS.Signals | null
  /** Time in ms from the start of the command until the tree was gone. */
  durationMs: number
  /** Whether a timeout ended the run: `timeoutMs` or `noOutputTimeoutMs`. */
  timedOut: boolean
  /** Whether `noOutputTimeoutMs` ended the run. */
  noOutputTimedOut: boolean
  /** The exit in one sentence for humans, such as `turn timed out after 30s`. */
  message: string
  /**
   * Why the command could not be started. Only with the reason `spawn-error`, and in a
   * {@link RunResult} whose {@link RunOptions.input} failed.
   */
  error?: StartError
  /**
   * Descendants that were alive when the root process had exited by itself, and were terminated.
   * Empty if the run ended for another reason.
   */
  leftovers: ProcessInfo[]
  /** The {@link RunExit.leftovers} that had left the session of the root process. */
  escaped: ProcessInfo[]
  /**
   * Members that needed SIGKILL: they were alive when the grace ended, or the grace was 0. The root
   * process can be one of them. On Windows: the members that were terminated with the Job Object.
   *
   * With the reason `lost` the list can be incomplete.
   */
  forced: ProcessInfo[]
  /**
   * Processes that could not be terminated, each with the cause. Empty means: verified, no process
   * of the tree exists.
   */
  survivors: ProcessInfo[]
  /** How many processes each list omits. Only present if a list would exceed 1,024 processes. */
  unlisted?: Unlisted
}

/** How many processes each list of a {@link RunExit} omits. */
export interface Unlisted {
  leftovers: number
  escaped: number
  forced: number
  survivors: number
}

/**
 * The properties of the `error` event of a command that could not be started, as a plain object.
 */
export interface StartError {
  /** `ENOENT`, `EACCES` … or `ERR_OWNED_…`. */
  code: string
  message: string
  /** As in Node, like the next three. Present if the operating system refused the command. */
  errno?: number
  syscall?: string
  path?: string
  spawnargs?: readonly string[]
}

/** A process in a report. */
export interface ProcessInfo {
  pid: number
  /** The identity of the process. It never matches a later process with the same PID. */
  startToken: string
  /** The name of the process in the kernel. */
  command: string
  /** Why the process is in the report. */
  why: string
}

// ---- cancelling ---------------------------------------------------------------------------------

/**
 * Terminates runs by id, by process or by filter. Resolves when their trees are gone.
 *
 * It searches the caller's own runs and the registry. The registry has the runs and registered
 * processes of all bots, alive or dead. The owner of a cancelled run gets the result too: its
 * `wait()` resolves with the given reason.
 *
 * A filter without a criterion (`{}`, `{ labels: {} }`) rejects with `ERR_OWNED_EMPTY_FILTER`. It
 * never means "all runs". If no process could be terminated, for example because all belong to
 * another user, it rejects with `ERR_OWNED_CANCEL_FAILED`. If only some could not, the `survivors`
 * of their exits list them.
 */
export function cancel(target: RunTarget, options?: CancelOptions): Promise<CancelResult>

/**
 * A run id, a process, or a filter for several runs.
 *
 * A `ChildProcess` selects the registry entry of exactly that process, never the entry of a later
 * process with the same PID. After the process has exited, its entry is only found if it was
 * registered with {@link RegisterEntry.process}. Otherwise `cancel` resolves with `already-exited`
 * and sends no signal. To terminate the rest of its process group, pass the run id.
 */
export type RunTarget = string | OwnedProcess | AdoptedRun | ChildProcess | RunFilter

/** Selects the runs that match all given criteria. An unknown key is an error. */
export interface RunFilter {
  /** The id of the run. */
  runId?: string | undefined
  /** The {@link SpawnOwnedOptions.sessionId} of the run. */
  sessionId?: string | undefined
  /** The {@link SpawnOwnedOptions.scopeKey} of the run. */
  scopeKey?: string | undefined
  /**
   * The PID of the root process or of the registered process.
   *
   * {@link cancel} and {@link unregisterProcess} skip a run if another process has this PID now.
   * Use `runId` to select such a run.
   */
  pid?: number | undefined
  /** The run has all of these labels. */
  labels?: Record<string, string> | undefined
}

/** How {@link cancel} terminates a run. */
export interface CancelOptions {
  /** Time in ms between the first signal and SIGKILL. Default: the `graceMs` of the run. */
  graceMs?: number | undefined
  /**
   * The first signal. Default SIGTERM. SIGKILL skips the grace.
   *
   * Windows: the first signal is always Ctrl+Break, and the exit reports the signal given here.
   */
  signal?: NodeJS.Signals | undefined
  /** The value for {@link RunExit.reason}. Default `manual-cancel`. */
  reason?: TerminationReason | undefined
}

/** What {@link cancel} did. */
export interface CancelResult {
  /**
   * - `cancelled`: the cancel ended at least one run.
   * - `already-exited`: the root processes had exited before the cancel reached them.
   * - `not-found`: no run matches. No process was signalled.
   */
  outcome: 'cancelled' | 'already-exited' | 'not-found'
  /** The exits of the matching live runs. If none is alive: of the runs known to have ended. */
  exits: RunExit[]
}

// ---- the registry -------------------------------------------------------------------------------

/**
 * Adds a process that was not started by {@link spawnOwned} to the registry.
 *
 * Then {@link cancel} can terminate it, and another bot reaps it if this bot dies. The call is
 * synchronous, because it captures the identity and the process group of the process now.
 *
 * If the process leads its process group, a cancel terminates the group. Otherwise it terminates
 * the process and its descendants. The entry is removed when the process has ended, or by
 * {@link unregisterProcess}.
 *
 * Windows: the process is put into a Job Object. Processes that it starts afterwards are terminated
 * with it.
 *
 * A bot may register itself (`pid: process.pid`). Then other bots find it. It never signals itself:
 * its own {@link cancel} rejects, and {@link shutdown} leaves it alone.
 *
 * @throws If there is no such process, if it must never be signalled (PID 1, or an ancestor of this
 * process), if the run id is in use, or if the registry cannot be written. Then the registry
 * contains no entry.
 */
export function registerProcess(entry: RegisterEntry): RunRecord

/** A process for {@link registerProcess}. */
export interface RegisterEntry {
  /** The PID of the process. */
  pid: number
  /**
   * The handle of the process, if `child_process` started it.
   *
   * With it, {@link cancel} and {@link unregisterProcess} find the entry by this handle even after
   * the process has exited and another process has its PID.
   */
  process?: ChildProcess | undefined
  /**
   * The result of {@link captureStartToken} for the process. If another process has the PID now,
   * `registerProcess` throws.
   */
  startToken?: string | undefined
  /** As in {@link SpawnOwnedOptions}, like the options below. */
  runId?: string | undefined
  sessionId?: string | undefined
  backendId?: string | undefined
  scopeKey?: string | undefined
  labels?: Record<string, string> | undefined
  /**
   * The text that the registry shows. Default: the name of the process in the kernel, because a
   * command line can contain secrets.
   */
  commandPreview?: string | undefined
  /** Time in ms between the first signal and SIGKILL. Default: that of the supervisor. */
  graceMs?: number | undefined
  /**
   * Terminate the process after this time in ms, from now on. 0 means no timeout. Default 0.
   *
   * The process has no keeper, so the bot measures the time: a timeout ends with the bot. The
   * reason of the exit is `overall-timeout`.
   */
  timeoutMs?: number | undefined
}

/**
 * Removes the entries of processes that this process registered. Returns whether there were any.
 *
 * The processes are not signalled.
 *
 * @throws `ERR_OWNED_STILL_OWNED` if the target is or includes a run that this process started with
 * {@link spawnOwned}. The entry of such a run is removed when it ends. Then no entry was removed.
 */
export function unregisterProcess(target: RunTarget): boolean

/**
 * Returns the live runs in the registry, of all bots, oldest first.
 *
 * Without a filter, or with `{}`, it returns all live runs. A run whose exit is recorded in the
 * registry is left out. If the bot and the keeper of a run were killed, the run stays in the list
 * until {@link reapOrphans} removes it. Its `state` is the state now: `exited` if no process that
 * the entry names is alive.
 *
 * If a part of the registry cannot be read, runs can be missing. Then a {@link RegistryEvent} of
 * kind `unreadable` is emitted before this function returns.
 */
export function list(filter?: RunFilter): RunRecord[]

/**
 * Resolves with the same runs as {@link list}, each with its owner's state and living processes.
 *
 * The work is done on a native thread. It follows the descendants of each keeper. It scans all
 * processes only for a run without a keeper.
 */
export function survey(options?: SurveyOptions): Promise<SurveyedRun[]>

/** Which runs {@link survey} returns, and in which form. */
export interface SurveyOptions extends RunFilter {
  /**
   * Return the processes as trees: {@link SurveyedRun.members} then has those whose parent is not a
   * member, and each process has its {@link SurveyedProcess.children}. Default false: a flat list.
   */
  tree?: boolean | undefined
}

/**
 * Resolves with the runs that have ended, of all bots of the registry, oldest first.
 *
 * The bot writes one line of JSON per run to a file beside the registry, not on the event loop. At
 * most 1,000 runs of the last seven days are returned. It includes runs that ended without a bot,
 * and runs that {@link reapOrphans} terminated. It does not include commands that could not be
 * started.
 */
export function history(filter?: HistoryFilter): Promise<EndedRun[]>

/** Which ended runs {@link history} returns. Default: all. */
export interface HistoryFilter extends RunFilter {
  /** Only runs that ended less than this many ms ago. */
  sinceMs?: number | undefined
  /** Only the latest runs, at most this many. */
  limit?: number | undefined
}

/** How a run ended, see {@link history}. */
export interface EndedRun {
  readonly runId: string
  /** The PID that the root process had. */
  readonly pid: number
  /** The PID of the owner. */
  readonly botPid: number
  readonly commandPreview: string
  readonly sessionId: string | null
  readonly scopeKey?: string
  readonly backendId?: string
  readonly service?: string
  readonly labels?: Readonly<Record<string, string>>
  /** When the run was started. */
  readonly startedAt: number
  /** When its tree was gone. */
  readonly endedAtMs: number
  /** As in {@link RunExit}, like the next five. */
  readonly reason: TerminationReason
  readonly ok: boolean
  readonly exitCode: number | null
  readonly signal: NodeJS.Signals | null
  readonly durationMs: number
  readonly message: string
  /** How many processes outlived the root process and were terminated. */
  readonly leftovers: number
  /** How many processes needed SIGKILL. */
  readonly forced: number
  /** How many processes could not be terminated. */
  readonly survivors: number
}

/** A run with the state of its owner and its living processes. */
export interface SurveyedRun {
  /** The registry entry. */
  readonly record: RunRecord
  /**
   * The owner of the run: this process, another living process, or a dead one. `unknown`: its state
   * cannot be read from here, for example because it is in another container.
   */
  readonly owner: 'me' | 'alive' | 'dead' | 'unknown'
  /** The living processes, oldest first. */
  readonly members: readonly SurveyedProcess[]
}

/** A living process of a run. */
export interface SurveyedProcess {
  readonly pid: number
  readonly ppid: number
  /** The identity of the process, see {@link captureStartToken}. */
  readonly startToken: string
  /** The name of the process in the kernel. */
  readonly command: string
  /** Time in ms since the process was started. */
  readonly ageMs: number
  /** User and system CPU time in ms. */
  readonly cpuMs: number
  /** Resident memory in bytes. */
  readonly rssBytes: number
  /** Whether the process has left the session of the run. It is still terminated with the run. */
  readonly escaped: boolean
  /** The members that it started, oldest first. Only with {@link SurveyOptions.tree}. */
  readonly children?: readonly SurveyedProcess[]
}

/** A registry entry: a run or a registered process. The object is frozen. */
export interface RunRecord {
  /** The PID of the root process or of the registered process. */
  readonly pid: number
  /** When the run was started. For a registered process: when that process was started. */
  readonly startedAt: number
  /** The {@link SpawnOwnedOptions.sessionId}, or `null`. */
  readonly sessionId: string | null
  /** The PID of the owner. */
  readonly botPid: number
  /** At most 120 characters. Never contains values of environment variables. */
  readonly commandPreview: string
  /** The id of the run. */
  readonly runId: string
  /**
   * The state of the run. `exited`: it ended while it had no owner. {@link RunRecord.exit} says
   * how, if its keeper could record it.
   */
  readonly state: RunState
  /**
   * The identity of the root process. `null` for an entry that another program wrote: its process
   * can only be recognised by its age.
   */
  readonly startToken: string | null
  /** The identity of the owner. */
  readonly botStartToken: string | null
  /** The {@link Supervisor.instanceId} of the owner. */
  readonly ownerInstanceId: string | null
  /**
   * When the owner's lease expires. Until then an owner whose state cannot be read counts as alive.
   */
  readonly leaseExpiresAtMs: number | null
  /**
   * The process group of the root process. It belongs to the run only if it equals `pid`. `null` on
   * Windows, and if the group is in another PID namespace.
   */
  readonly pgid: number | null
  /**
   * How the tree is contained.
   *
   * - `keeper`: a keeper. No member can leave.
   * - `cgroup`: a keeper and a cgroup.
   * - `group`: a registered process and the process group that it leads.
   * - `process`: a registered process and its descendants.
   * - `job`: a Job Object (Windows). No member can leave.
   */
  readonly containment: 'keeper' | 'cgroup' | 'group' | 'process' | 'job'
  /**
   * The identity of the run's keeper, and the socket on which it accepts control clients. On
   * Windows the identity of the bot, and its named pipe.
   */
  readonly keeper?: { readonly startToken: string; readonly address: string }
  /**
   * The secret key of the run. A process belongs to the run if `~` and this key are one element of
   * its `SPAWN_OWNED_RUN`, and the process is not older than the root process. Absent for
   * registered processes and in entries of older versions.
   */
  readonly cookieKey?: string
  /** The directory of the run's cgroup. */
  readonly cgroup?: string
  /** The name of the run's Job Object, if another bot must be able to open it. Windows only. */
  readonly job?: string
  /**
   * The rules that the next owner of a kept run needs. Windows only. `timeout.afterMs` counts from
   * `startedAt`.
   */
  readonly rules?: {
    readonly onLeaderExit: 'kill' | 'keep'
    readonly timeout?: { readonly afterMs: number; readonly signal: number }
  }
  readonly backendId?: string
  readonly scopeKey?: string
  /** The name of the service, if the run is one, see {@link ensureService}. */
  readonly service?: string
  /** The labels. Absent if there are none. */
  readonly labels?: Readonly<Record<string, string>>
  /** The {@link SpawnOwnedOptions.metadata}. Absent if there is none. */
  readonly metadata?: unknown
  /** Time in ms between the first signal and SIGKILL. */
  readonly graceMs: number
  /** Always `keep` for a registered process, because it has no keeper. */
  readonly onOwnerExit: 'kill' | 'keep'
  /** When the entry was created. */
  readonly createdAtMs: number
  /** When the entry was last changed. */
  readonly updatedAtMs: number
  /** When the bot last read output of the run. `null` if it never has. */
  readonly lastOutputAtMs: number | null
  /**
   * Start tokens of other processes in the group of a registered process, captured while it lived.
   * They prove later that the group is still the same. On Windows: the members of a kept run.
   */
  readonly members?: readonly string[]
  /** How the run ended, if it had no owner then. */
  readonly exit?: RecordedExit
}

/** The exit of a run without an owner, as its keeper recorded it. */
export interface RecordedExit {
  /** When the tree was gone. */
  readonly atMs: number
  /** As in {@link RunExit}. */
  readonly reason: TerminationReason
  /** What ended the run. */
  readonly ending:
    | 'root-exit'
    | 'cancel'
    | 'overall-timeout'
    | 'no-output-timeout'
    | 'owner-exit'
    | 'shutdown'
    | 'lost'
  /** The value of the timeout in ms, if a timeout ended the run. */
  readonly limitMs?: number
  /** As in {@link RunExit}. */
  readonly exitCode: number | null
  /** The number of the signal that killed the root process, else `null`. */
  readonly signal: number | null
  /** How many processes could not be terminated. */
  readonly survivors: number
}

// ---- reaping ------------------------------------------------------------------------------------

/**
 * Terminates the runs of dead bots. Call it when a bot starts.
 *
 * It decides about every entry of the registry, and looks at no other process:
 *
 * - The owner is alive: the entry is left alone.
 * - All processes of the entry are dead: the entry is dropped.
 * - The process is not the recorded one, or that cannot be proven: it is skipped. Examples: its PID
 *   was reused, or it is in another PID namespace.
 * - Otherwise: `policy` decides. By default the tree is terminated.
 *
 * If several bots reap at the same time, each entry is handled by one of them.
 *
 * @param botPid - The PID of the caller. Default `process.pid`. The start token is compared too, so
 * a new bot with the PID of its predecessor (in a container) is a different bot.
 */
export function reapOrphans(botPid?: number, options?: ReapOptions): Promise<ReapReport>
export function reapOrphans(options: ReapOptions): Promise<ReapReport>

/** Options of {@link reapOrphans}. */
export interface ReapOptions {
  /** Only report the decisions: send no signal and change no file. Default false. */
  dryRun?: boolean | undefined
  /** Time in ms between SIGTERM and SIGKILL. Default: the `graceMs` of each entry. */
  graceMs?: number | undefined
  /**
   * What happens to orphans. Default `'terminate'`. For `'adopt'` see {@link adopt}.
   *
   * A function is called for each orphan, synchronously and before any signal is sent. If it
   * throws, no signal is sent and no entry changes.
   */
  policy?: 'terminate' | 'adopt' | ((record: RunRecord) => 'terminate' | 'adopt' | 'leave') | undefined
  /**
   * Also take runs whose owner is alive but did not renew its lease in time, because it was stopped
   * or the machine slept. Default false.
   */
  stealFromLive?: boolean | undefined
}

/**
 * What {@link reapOrphans} found and did.
 *
 * `decisions` contains every entry. Each entry is in at most one of the other lists. Entries of
 * living bots, and entries that another bot claimed first, are in none of them.
 */
export interface ReapReport {
  /** PIDs of the root processes whose trees were terminated, each once. Empty in a dry run. */
  killed: number[]
  /** The entries of the trees that were terminated. Empty in a dry run. */
  ended: RunRecord[]
  /** PIDs of entries whose processes were gone. In a dry run too. */
  alreadyDead: number[]
  /**
   * Orphans that were left alone, also in a dry run. Possible reasons: another process has the PID
   * now, the identity cannot be proven, the process must not be signalled, or the policy said so.
   */
  skipped: { pid: number; reason: string }[]
  /** Orphans that could not be terminated or adopted. */
  failed: { pid: number; error: string }[]
  /** Runs that this bot owns now. {@link adopt} returns their handles. */
  adopted: RunRecord[]
  /** One decision for each entry. */
  decisions: ReapDecision[]
  /** Present if a part of the registry could not be read. Then orphans can be missing here. */
  registryProblem?: RegistryProblem
}

/** Why a part of a registry could not be read. An empty or missing registry is not a problem. */
export interface RegistryProblem {
  /** As in {@link RegistryEvent}: `unreadable`. */
  kind: string
  /** For humans: what is wrong, and what to do. */
  message: string
  /** The file that cannot be read: the registry or its journal. */
  path: string
}

/** The decision about one registry entry, its reason and its outcome. */
export interface ReapDecision {
  /** The id of the run. */
  runId: string
  /** The PID in the entry. */
  pid: number
  /**
   * `drop-reused`: the recorded process is gone, and another process has its PID. That process is
   * not signalled.
   */
  decision: 'leave' | 'drop' | 'drop-reused' | 'skip' | 'end' | 'adopt'
  /**
   * What happened. `planned`: dry run, nothing changed. `taken`: another bot claimed the entry
   * first. `already-dead`: the entry was dropped, because no process was left to terminate.
   */
  outcome: 'planned' | 'left' | 'skipped' | 'already-dead' | 'ended' | 'adopted' | 'taken' | 'failed'
  /** Whether this was a dry run. */
  dryRun: boolean
  /** Whether the policy replaced the decision `end` by another one. */
  byPolicy: boolean
  /** The reason, for humans. */
  reason: string
  /** Why it failed. Or: the run has ended, but its entry could not be removed yet. */
  error?: string
  /**
   * The facts behind the decision, one word each: the state of owner, lease, root, group, keeper …
   */
  facts: Readonly<Record<string, string>>
  /** The entry. */
  record: RunRecord
}

// ---- orphans and suspects -----------------------------------------------------------------------

/**
 * Searches for orphans. It sends no signal and changes no file.
 *
 * - *Confirmed* orphans are in the registry, with a proven identity. {@link reapOrphans} would
 *   terminate them.
 * - *Suspects* are in no registry. They are processes of this user whose name matches a pattern
 *   **and** that either work in the project directory or descend from a living bot.
 *
 * Never suspects: members of runs of any registry, bots, this process and its ancestors.
 */
export function findOrphans(options?: FindOrphansOptions): Promise<OrphanFindings>

/** Which processes are suspects. */
export interface SuspectOptions {
  /**
   * Patterns for the name of a process. Default {@link suspectPatterns}.
   *
   * Names of a process are its program and, for an interpreter or runner (`node`, `npx`, `python`
   * …), the script or package. Other arguments are not names. A string must match the whole name;
   * `*` matches any text, and case is ignored. A regular expression is tested on each name.
   */
  patterns?: readonly (string | RegExp)[] | undefined
  /**
   * The project directory. Default: the current directory, unless it is the root of the file
   * system.
   *
   * Windows: the working directory of other processes cannot be read. So only descendants of a bot
   * are suspects.
   */
  projectDir?: string | undefined
}

/** Options of {@link findOrphans}. */
export interface FindOrphansOptions extends SuspectOptions {
  /** Whether to search for suspects. Default true. */
  suspects?: boolean | undefined
}

/** The result of {@link findOrphans}. */
export interface OrphanFindings {
  /** Orphans that {@link reapOrphans} would terminate. */
  confirmed: ReapDecision[]
  /** Processes that may be orphans. */
  suspected: Suspect[]
  /** Present if a part of the registry could not be read. Then orphans can be missing here. */
  registryProblem?: RegistryProblem
}

/** A process that may be an orphan, without proof. */
export interface Suspect {
  pid: number
  /** The identity of the process, see {@link captureStartToken}. */
  startToken: string
  /** The command line, at most 120 characters. */
  command: string
  /** Time in ms since the process was started. */
  ageMs: number
  ppid: number
  /** The working directory. `null` if it cannot be read. */
  cwd: string | null
  /** The pattern that matches. */
  pattern: string
  /** For humans, for example `matches "claude" and runs in /project`. */
  reason: string
}

/**
 * Terminates confirmed orphans and, only with `force`, suspects.
 *
 * Confirmed orphans are those of {@link reapOrphans}. Each suspect is checked again before it is
 * terminated, and its identity is checked before every signal.
 */
export function endOrphans(options?: EndOrphansOptions): Promise<OrphanReport>

/** Options of {@link endOrphans}. */
export interface EndOrphansOptions extends SuspectOptions {
  /** Only report the decisions: send no signal and change no file. Default false. */
  dryRun?: boolean | undefined
  /** Also terminate suspects. Default false: suspects are only reported. */
  force?: boolean | undefined
  /** Leave processes alone that were started less than this many ms ago. Default 0. */
  olderThanMs?: number | undefined
  /**
   * Time in ms between SIGTERM and SIGKILL. Default: the `graceMs` of each entry, and for suspects
   * that of the supervisor.
   */
  graceMs?: number | undefined
}

/** The result of {@link endOrphans}. */
export interface OrphanReport extends ReapReport {
  /** The suspects, and what happened to them. */
  suspected: SettledSuspect[]
}

/** A suspect, and what happened to it. */
export interface SettledSuspect extends Suspect {
  /**
   * - `planned`: dry run. Without `dryRun` it would be terminated.
   * - `reported`: `force` is not set.
   * - `ended`: it was terminated.
   * - `skipped`: it was left alone. `error` says why.
   * - `failed`: it could not be terminated. `error` says why.
   */
  outcome: 'planned' | 'reported' | 'ended' | 'skipped' | 'failed'
  error?: string
}

/**
 * The default patterns: CLI agents and MCP servers. Extend them: `[...suspectPatterns, 'mine']`.
 */
export const suspectPatterns: readonly string[]

/**
 * Searches for orphans continuously: when a bot of this registry dies, and at every interval.
 *
 * Each orphan is reported once, as `orphan:detected` on the supervisor and in the event log. With
 * `autoKill`, confirmed orphans are terminated as by {@link reapOrphans}. Suspects are never
 * terminated.
 *
 * The watch does not keep the event loop alive. When a bot dies, its keepers terminate its runs.
 * Meanwhile these runs do not count as orphans.
 */
export function watchOrphans(options?: WatchOptions): OrphanWatch

/** Options of {@link watchOrphans}. */
export interface WatchOptions extends SuspectOptions {
  /** Time in ms between two searches, if no bot dies. At least 100. Default 60000. */
  intervalMs?: number | undefined
  /** Alias of `intervalMs`. */
  interval?: number | undefined
  /** The age in ms from which `autoKill` terminates a confirmed orphan. Default 0. */
  maxAgeMs?: number | undefined
  /** Alias of `maxAgeMs`. */
  maxAge?: number | undefined
  /** Terminate confirmed orphans. Default false. */
  autoKill?: boolean | undefined
  /** Time in ms between SIGTERM and SIGKILL. Default: the `graceMs` of each entry. */
  graceMs?: number | undefined
}

/** A running watch, see {@link watchOrphans}. */
export interface OrphanWatch {
  /** Counters of the watch. */
  readonly stats: OrphanWatchStats
  /**
   * Searches now, and resolves with the findings.
   *
   * During a search, a call waits for that search and then starts a new one. After
   * {@link OrphanWatch.stop}, it only returns the findings: no event is emitted and no signal is
   * sent.
   */
  check(): Promise<OrphanFindings>
  /**
   * Stops the watch. No more orphans are reported or terminated, except those whose termination has
   * begun.
   */
  stop(): void
  /** For `using`: the same as {@link OrphanWatch.stop}. */
  [Symbol.dispose](): void
}

/** Counters of an {@link OrphanWatch}. */
export interface OrphanWatchStats {
  /** False after {@link OrphanWatch.stop}. */
  watching: boolean
  /** When the last search finished. `null` before that. */
  lastCheck: number | null
  /** Confirmed orphans and suspects, each counted once. */
  orphansDetected: number
  /** Orphans that the watch terminated. */
  orphansKilled: number
}

/**
 * Takes over a run that outlived its bot (`onOwnerExit: 'keep'`). Resolves with its handle.
 *
 * Every call for the same run returns the same handle, also for runs that {@link reapOrphans}
 * adopted. If the run has ended meanwhile, the handle says how.
 *
 * The output of the run still goes to its original stdio. Files keep working. Pipes to the dead bot
 * are closed.
 *
 * Rejects with `ERR_OWNED_NOT_FOUND` if there is no such run, `ERR_OWNED_OWNER_ALIVE` if its bot is
 * alive, and `ERR_OWNED_ALREADY_OWNED` if the caller owns it already.
 */
export function adopt(runId: string): Promise<AdoptedRun>

/**
 * A run that another bot started. It keeps the event loop alive only while a caller waits for its
 * exit.
 */
export interface AdoptedRun {
  /** The id of the run. */
  readonly runId: string
  /** The PID of the root process. */
  readonly pid: number
  /** The registry entry at the time of the adoption. */
  readonly record: RunRecord
  /** The state of the run now. */
  readonly state: RunState
  /** As {@link OwnedProcess.wait}. */
  wait(): Promise<RunExit>
  /** As {@link OwnedProcess.cancel}. */
  cancel(options?: CancelOptions): Promise<RunExit>
  /** For `await using`: cancels the run, and resolves when its tree is gone. */
  [Symbol.asyncDispose](): Promise<void>
}

// ---- services -----------------------------------------------------------------------------------

/**
 * Starts a long-lived service unless it is up. Resolves when it is up.
 *
 * A registry has at most one service of each name, however many processes call this at the same
 * time. One of them starts the service, the others wait for it. If the starter dies, another caller
 * takes over.
 *
 * A service is *up* if the recorded process is alive, checked by its identity, **and** it answers:
 * at `port`, to `ready()`, or both. Another process at the port is never mistaken for the service.
 * A service that is alive but does not get ready in time is terminated and started again.
 *
 * A service has no owner. It survives its starter, and it does not keep the event loop alive.
 * {@link reapOrphans} and {@link shutdown} leave it alone. {@link stopService},
 * {@link Service.stop} and {@link cancel} terminate it, from any process.
 *
 * @example
 * ```ts
 * import { ensureService } from 'spawn-owned'
 *
 * const command = process.execPath
 * const worker = await ensureService({ name: 'memory', command, args: ['worker.mjs'], port: 37777 })
 * ```
 *
 * Rejects with one of these codes. Then no process that this call started is left.
 * - `ERR_OWNED_SERVICE_FAILED`: the service is not up after `attempts`. The message says how the
 *   last attempt ended.
 * - `ERR_OWNED_PORT_TAKEN`: another process listens at the port.
 * - `ERR_OWNED_SERVICE_STOPPED`: the service was stopped before it was ready.
 * - `ERR_OWNED_SERVICE_UNKNOWN`: the state of the recorded service cannot be read, because it is in
 *   another PID namespace.
 * - `ERR_OWNED_SCOPE_BUSY`: processes of an earlier instance cannot be terminated, or another run
 *   has the scope `service:<name>`.
 * - `ENOENT`, `EACCES` …: the command cannot be executed. There is no further attempt.
 * - `ABORT_ERR`: `signal` was aborted.
 */
export function ensureService(options: ServiceOptions): Promise<Service>

/** Options of {@link ensureService}. An unknown key is an error. */
export interface ServiceOptions
  extends Pick<
    SpawnOwnedOptions,
    | 'cwd'
    | 'env'
    | 'shell'
    | 'argv0'
    | 'uid'
    | 'gid'
    | 'windowsHide'
    | 'windowsVerbatimArguments'
    | 'graceMs'
    | 'sessionId'
    | 'backendId'
    | 'labels'
    | 'commandPreview'
    | 'containment'
    | 'limits'
  > {
  /** The name of the service in the registry. 1 to 128 letters, digits, `.`, `_` and `-`. */
  name: string
  /** The command. It must stay in the foreground: if it forks and exits, the service has ended. */
  command: string
  /** The arguments of the command. */
  args?: readonly string[] | undefined
  /**
   * The TCP port at which the service answers when it is up. `port` or `ready` is required.
   *
   * On Linux the process that listens there must be a member of the service's tree. On macOS and
   * Windows this cannot be checked: the port must answer and the service must be alive.
   */
  port?: number | undefined
  /** The host of `port`. Default `127.0.0.1`. */
  host?: string | undefined
  /**
   * Returns whether the service is up. It is called repeatedly, and a rejection means false. With
   * `port` it is called once the port answers, and both must succeed.
   */
  ready?: (() => boolean | Promise<boolean>) | undefined
  /** The longest time in ms until an attempt is ready. Default 10000. */
  readyTimeoutMs?: number | undefined
  /**
   * How many instances may fail before the call rejects. Instances that other callers started count
   * too. Default 3.
   */
  attempts?: number | undefined
  /** Delay in ms before the second attempt. It doubles with each attempt. Default 250. */
  backoffMs?: number | undefined
  /** The file to which stdout and stderr are appended. Default: the output is discarded. */
  logPath?: string | undefined
  /** Aborts the call. An instance that this call started and that is not up yet is terminated. */
  signal?: AbortSignal | undefined
}

/** A service that is up. */
export interface Service {
  /** The name of the service. */
  readonly name: string
  /** The id of its run. */
  readonly runId: string
  /** The PID of its root process. */
  readonly pid: number
  /** The registry entry at the time when the service was found to be up. */
  readonly record: RunRecord
  /** Whether this call started the service. */
  readonly started: boolean
  /** Terminates this instance, and never a newer one. Resolves when its tree is gone. */
  stop(options?: CancelOptions): Promise<RunExit>
}

/** Terminates a service by its name, from any process. Resolves when its tree is gone. */
export function stopService(name: string, options?: CancelOptions): Promise<CancelResult>

// ---- shutting down ------------------------------------------------------------------------------

/**
 * Terminates everything that the supervisor owns, in parallel. Resolves when all trees are gone.
 *
 * This includes runs that it started or adopted, runs that wait for their scope, and processes that
 * it registered. It does not include services and runs of other supervisors. Each tree gets
 * SIGTERM, then `graceMs`, then SIGKILL. With the default grace this takes at most 6 s.
 *
 * During the shutdown, `spawnOwned`, `registerProcess` and `adopt` fail with
 * `ERR_OWNED_SHUTTING_DOWN`. Afterwards they work again. A second call during the shutdown gets the
 * same result. It can shorten the grace. The shutdown keeps the event loop alive.
 *
 * It does not reject because of processes that it cannot terminate: `survivors` lists them.
 */
export function shutdown(options?: ShutdownOptions): Promise<ShutdownReport>

/**
 * Closes the supervisor: runs {@link shutdown}, then frees its thread, file descriptors and memory.
 *
 * When it resolves, the registry file is up to date. The native thread of a registry path ends with
 * the last supervisor on that path.
 *
 * From this call on, every other method fails with `ERR_OWNED_CLOSED`. A second `close()` returns
 * the first result. Orphan watches are stopped, and signal handlers are removed. Existing handles
 * keep working. This process still owns its services, survivors and (with `leaveKept`) kept runs.
 * The thread lives until they end.
 *
 * `await using supervisor = createSupervisor()` calls this at the end of the block.
 *
 * Rejects only if the shutdown cannot begin. Then no process was signalled, and the supervisor is
 * still open.
 */
export function close(options?: ShutdownOptions): Promise<void>

/** Options of {@link shutdown} and {@link close}. */
export interface ShutdownOptions {
  /** Time in ms between SIGTERM and SIGKILL. It overrides the grace of each run. Default 5000. */
  graceMs?: number | undefined
  /**
   * Leave runs with `onOwnerExit: 'keep'` running. This bot still owns them. Default false: they
   * are terminated too.
   */
  leaveKept?: boolean | undefined
}

/** The result of {@link shutdown}. */
export interface ShutdownReport {
  /** One exit for each run and registered process that ended during the shutdown. */
  exits: RunExit[]
  /** The survivors of all exits. Empty means: verified, no process is left. */
  survivors: ProcessInfo[]
  /** How long the shutdown took, in ms. */
  durationMs: number
}

/**
 * Runs {@link shutdown} when the bot gets a termination signal. Off unless it is called.
 *
 * On SIGINT, SIGTERM or SIGHUP the supervisor shuts down. Then the bot exits with the usual code
 * (130, 143, 129). A second signal sends SIGKILL at once. When the event loop becomes empty, runs
 * that were unref'ed and are still alive are shut down too. This does not change the exit code.
 *
 * Other signal handlers of the bot are called as before. If one of them needs more time than the
 * shutdown, use `exit: false` and call `process.exit` yourself. A second call replaces the options
 * of the first. If several supervisors have handlers, the bot exits when all of them have shut
 * down.
 *
 * @returns A function that removes the handlers.
 * @throws `ERR_OWNED_NOT_MAIN_THREAD` in a worker thread, because Node delivers signals only to the
 * main thread.
 */
export function installSignalHandlers(options?: SignalHandlerOptions): () => void

/** Options of {@link installSignalHandlers}. */
export interface SignalHandlerOptions {
  /** The signals to handle. Default SIGINT, SIGTERM and SIGHUP. */
  signals?: readonly NodeJS.Signals[] | undefined
  /** As in {@link ShutdownOptions}. */
  graceMs?: number | undefined
  /**
   * As in {@link ShutdownOptions}, but true by default, because kept runs are meant to outlive the
   * bot.
   */
  leaveKept?: boolean | undefined
  /**
   * Whether the bot exits after the shutdown. Default true. With false the bot must exit itself.
   */
  exit?: boolean | undefined
}

// ---- identity -----------------------------------------------------------------------------------

/**
 * Returns the start token of a process: PID, start time, PID namespace and boot in one string.
 *
 * No later process has the same token. Returns `null` if there is no such process, if it is a
 * zombie, if `pid` cannot be a PID (`-1`, `1.5`), or if the process cannot be read.
 *
 * @throws A `TypeError` if `pid` is not a number.
 */
export function captureStartToken(pid: number): string | null

/** Returns whether the process of a start token is alive. False if this is not certain. */
export function isSameProcess(token: string): boolean

/**
 * Returns the containment mechanisms of this system, available or not.
 *
 * On Linux `keeper`, `cgroup`, `pidfd` and `pidfd-group`. On macOS `keeper` and `cgroup`. On
 * Windows `job` and `handle`.
 */
export function capabilities(): Capability[]

/** A containment mechanism of this system. */
export interface Capability {
  /** The name of the mechanism. */
  name: string
  /** Whether it can be used. */
  available: boolean
  /** What it is used for. If it is not available: why, and what to change. */
  why: string
}

// ---- supervisors --------------------------------------------------------------------------------

/**
 * Creates a supervisor, with its own registry or on a shared one. It does not access the file
 * system.
 */
export function createSupervisor(options?: SupervisorOptions): Supervisor

/**
 * The options of a run that a supervisor can have defaults for: all except those that belong to one
 * run.
 */
export interface RunDefaults
  extends Omit<SpawnOwnedOptions, 'runId' | 'commandPreview' | 'argv0' | 'stdio' | 'pty'> {}

/**
 * Options of {@link createSupervisor}: its own, and the defaults for the options of its runs.
 *
 * An option of a run overrides the default. Labels are merged: the run's label of the same name
 * wins. A default `noOutputTimeoutMs` does not apply to a run without piped output. Services have no
 * defaults except `graceMs`.
 */
export interface SupervisorOptions extends RunDefaults {
  /**
   * The path of the registry file. Default: `$SPAWN_OWNED_REGISTRY`, else
   * `data/process-registry.json` in the current directory.
   *
   * A relative path is resolved when the supervisor is created. The folder must be durable, never
   * one for temporary files. It is created if necessary.
   */
  registryPath?: string | undefined
  /** Default grace in ms for runs, registered processes and services. Default 5000. */
  graceMs?: number | undefined
  /** Default of {@link SpawnOwnedOptions.onLeaderExit}. Default `'kill'`. */
  onLeaderExit?: 'kill' | 'keep' | undefined
  /**
   * Duration of a lease in ms, at least 1000. Default 30000.
   *
   * The owner renews it after each third of this time. An owner whose state cannot be read counts
   * as alive until its lease expires.
   */
  leaseMs?: number | undefined
  /**
   * The path of the event log. `null` means no log. Default: `orphan-events.log` beside the
   * registry.
   *
   * {@link reapOrphans}, {@link endOrphans} and {@link watchOrphans} write one line for each
   * decision about an orphan. At 1 MiB the file is renamed to the same name with `.1`.
   */
  eventLogPath?: string | null | undefined
  /**
   * The path of the file for {@link history}. `null` means no file. Default: beside the registry,
   * with its name and `.history`.
   *
   * At 1 MiB the file is renamed to the same name with `.1`.
   */
  historyPath?: string | null | undefined
}

/** Owns runs. Its methods do not need `this`: `const { spawnOwned } = createSupervisor()`. */
export interface Supervisor extends EventEmitter {
  /** The id of this supervisor in the registry. */
  readonly instanceId: string
  /** The absolute path of the registry file. */
  readonly registryPath: string
  readonly spawnOwned: typeof spawnOwned
  readonly run: typeof run
  readonly cancel: typeof cancel
  readonly registerProcess: typeof registerProcess
  readonly unregisterProcess: typeof unregisterProcess
  readonly list: typeof list
  readonly survey: typeof survey
  readonly history: typeof history
  readonly reapOrphans: typeof reapOrphans
  /** Alias of {@link Supervisor.reapOrphans}. */
  readonly reconcileOrphans: typeof reapOrphans
  readonly findOrphans: typeof findOrphans
  readonly endOrphans: typeof endOrphans
  readonly watchOrphans: typeof watchOrphans
  readonly adopt: typeof adopt
  readonly ensureService: typeof ensureService
  readonly stopService: typeof stopService
  readonly shutdown: typeof shutdown
  readonly close: typeof close
  /** For `await using`: the same as {@link Supervisor.close} without options. */
  [Symbol.asyncDispose](): Promise<void>
  readonly installSignalHandlers: typeof installSignalHandlers
  readonly metrics: typeof metrics
  readonly metricsText: typeof metricsText
  on(event: 'event', listener: (event: OwnedEvent) => void): this
  on(event: OrphanEventName, listener: (event: OrphanEvent) => void): this
  once(event: 'event', listener: (event: OwnedEvent) => void): this
  once(event: OrphanEventName, listener: (event: OrphanEvent) => void): this
  off(event: 'event', listener: (event: OwnedEvent) => void): this
  off(event: OrphanEventName, listener: (event: OrphanEvent) => void): this
}

// ---- events and counters ------------------------------------------------------------------------

/**
 * An event of a supervisor.
 *
 * The supervisor emits it as `event`. It is also published on the `diagnostics_channel`
 * `spawn-owned:<type>`, for example `spawn-owned:exited`. That channel has the events of all
 * supervisors in the process.
 */
export type OwnedEvent = RunEvent | ShutdownEvent | ReapDecisionEvent | RegistryEvent | LeaseEvent

/** An event about one run. */
export type RunEvent =
  | SpawnEvent
  | StartedEvent
  | OutputEvent
  | DeadlineWarningEvent
  | ExitingEvent
  | EscapeEvent
  | ExitedEvent

/** The properties of every event about a run. */
export interface AboutRun {
  /** When the event happened. */
  atMs: number
  /** The id of the run. */
  runId: string
  /** The PID of the root process. `undefined` if the run never started. */
  pid: number | undefined
  sessionId: string | undefined
  scopeKey: string | undefined
  labels: Readonly<Record<string, string>>
}

/** The run is in the registry, and its command is being executed. */
export interface SpawnEvent extends AboutRun {
  type: 'spawn'
  commandPreview: string
}

/** The command runs, and its timeouts have started. */
export interface StartedEvent extends AboutRun {
  type: 'started'
}

/** The bot has read output of the run. At most one event per second. */
export interface OutputEvent extends AboutRun {
  type: 'output'
}

/** 80 % of a timeout has passed. {@link OwnedProcess.extendDeadline} extends it. */
export interface DeadlineWarningEvent extends AboutRun {
  type: 'deadline-warning'
  /** Which timeout: `timeoutMs` or `noOutputTimeoutMs`. */
  deadline: 'overall' | 'no-output'
  /** The value of the timeout in ms. */
  limitMs: number
  /** The time in ms that is left. */
  remainingMs: number
}

/**
 * The termination of the tree begins: a cancel, a timeout or a shutdown. Not emitted if the root
 * process exits by itself.
 */
export interface ExitingEvent extends AboutRun {
  type: 'exiting'
  reason: TerminationReason
}

/** The root process ended by itself, and descendants outside its session were terminated. */
export interface EscapeEvent extends AboutRun {
  type: 'escape'
  escaped: readonly ProcessInfo[]
}

/** The tree is gone, or the command could not be started. Emitted once for each run. */
export interface ExitedEvent extends AboutRun {
  type: 'exited'
  exit: RunExit
}

/** A {@link shutdown} begins or ends. */
export type ShutdownEvent = ShutdownBeginEvent | ShutdownEndEvent

/** A {@link shutdown} begins. */
export interface ShutdownBeginEvent {
  type: 'shutdown'
  phase: 'begin'
  atMs: number
  /** How many runs and registered processes will be terminated. */
  runs: number
  graceMs: number
  leaveKept: boolean
}

/** A {@link shutdown} has ended. */
export interface ShutdownEndEvent {
  type: 'shutdown'
  phase: 'end'
  atMs: number
  /** How many runs and registered processes ended. */
  runs: number
  /** How many processes could not be terminated. */
  survivors: number
  durationMs: number
}

/** One decision of {@link ReapReport.decisions}. */
export interface ReapDecisionEvent extends ReapDecision {
  type: 'reap-decision'
}

/**
 * The names of the orphan events, which the supervisor emits.
 *
 * - `orphan:detected`: a process of an orphan may be alive. Emitted before any signal.
 * - `orphan:killed`, `orphan:skipped`, `orphan:failed`: what happened to the orphan.
 *
 * An entry whose processes are all dead only gets `orphan:skipped`. A dry run only emits
 * `orphan:detected`. So does a watch for the orphans that it does not terminate.
 */
export type OrphanEventName = 'orphan:detected' | 'orphan:killed' | 'orphan:skipped' | 'orphan:failed'

/** An event about one orphan. {@link SupervisorOptions.eventLogPath} contains the same data. */
export interface OrphanEvent {
  /** When the event happened. */
  atMs: number
  pid: number
  /** The id of the run. `null` for a suspect. */
  runId: string | null
  /** The {@link RunRecord.commandPreview}, or the command line of a suspect. */
  command: string
  /** Time in ms since the process was started. `null` if not known. */
  ageMs: number | null
  /**
   * - `confirmed`: it is the recorded run, and may be terminated.
   * - `unproven`: it may or may not be the recorded run.
   * - `refused`: the process must not be signalled.
   * - `reused`: another process has its PID now.
   * - `dead`: none of its processes is left.
   * - `suspected`: it is a suspect, without a registry entry.
   */
  status: 'confirmed' | 'unproven' | 'refused' | 'reused' | 'dead' | 'suspected'
  /** For humans: the reason of the decision or of the failure. */
  reason: string
  dryRun: boolean
}

/**
 * A problem with the registry, or its end. Without a listener it becomes a process warning, once
 * for each kind.
 */
export interface RegistryEvent {
  type: 'registry'
  /**
   * - `unreadable`: a part of the registry cannot be read, so listed runs can be incomplete.
   * - `corrupt`: not all of the file could be read. `path` is a copy of it. A new file was written.
   * - `torn`: a damaged part of the journal was skipped.
   * - `unwritable`: the registry cannot be written.
   * - `locked`: another process holds the lock, so the registry file is outdated.
   * - `event-log`: the event log cannot be written.
   * - `history`: the file of {@link history} cannot be written.
   * - `timeout`: a registered process reached its timeout, and could not be terminated.
   * - `watch`: {@link watchOrphans} could not search for orphans.
   */
  kind: string
  /** For humans: what happened, and what to do. */
  message: string
  /** The file. */
  path: string
}

/**
 * This bot could not renew its lease in time. Other bots may take these runs, or have taken them.
 */
export interface LeaseEvent {
  type: 'lease'
  kind: 'lost'
  message: string
  runIds: readonly string[]
}

/**
 * Returns the counters of the supervisor. Native code counts, so a busy event loop loses no event.
 */
export function metrics(): Metrics

/** Returns {@link metrics} in the text format of Prometheus, for an endpoint such as `/metrics`. */
export function metricsText(): string

/** All values are counters, except the gauge `run_live`. */
export interface Metrics {
  /** Runs that were started. */
  run_spawn_total: number
  /** Runs that ended, by reason. */
  run_exit_total: Record<TerminationReason, number>
  /** Runs that reached a timeout. */
  run_timeout_total: Record<'overall' | 'no-output', number>
  /** Trees that were terminated, by the last means: the first signal, or SIGKILL. */
  run_cleanup_kill_total: Record<'signal' | 'kill', number>
  /** Runs of dead bots that were terminated or adopted. */
  run_reconcile_orphans_total: number
  /** Runs that were taken after their lease expired, from an owner that was not proven dead. */
  run_lease_steal_total: number
  /** Runs whose root process ended by itself and left a process outside its session. */
  run_ownership_escape_total: number
  /** Runs and registered processes that are alive. */
  run_live: number
}
