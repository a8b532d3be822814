/**
 * `spawn-owned`: a `child_process.spawn` whose caller owns everything the command causes.
 *
 * The functions here belong to a default supervisor, which is made when one of them is first called. Its registry is
 * `$SPAWN_OWNED_REGISTRY` or, if that is not set, `data/process-registry.json` in the directory that is current _then_.
 * {@link createSupervisor} makes others.
 *
 * Times are milliseconds; points in time are `Date.now()` based. Errors carry a `code`: `ERR_OWNED_…`, or Node's own.
 *
 * @packageDocumentation
 */

import type {
  ChildProcess,
  ChildProcessByStdio,
  ChildProcessWithoutNullStreams,
  SpawnOptions,
} from 'node:child_process'
import type { EventEmitter } from 'node:events'

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
 * @throws with `code` `ERR_OWNED_…` if the keeper cannot be run (on Windows: if the runtime is not Node), if the registry cannot be written, or if the run id is in
 * use: then nothing was started, and no entry is left. Invalid arguments throw Node's own errors. A command that cannot be
 * started emits `error`, as with `child_process.spawn`.
 */
export function spawnOwned(
  command: string,
  args: readonly string[] | null | undefined,
  options: SpawnOwnedOptions & { pty: true | PtyOptions },
): OwnedTerminal
export function spawnOwned(
  command: string,
  options: SpawnOwnedOptions & { pty: true | PtyOptions },
): OwnedTerminal
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
  /** Names the run, in the whole registry. Letters, digits and `. _ -`, at most 128. Default: a fresh UUID. */
  runId?: string | undefined
  /** The chat session, job or turn this run belongs to, for {@link cancel}. */
  sessionId?: string | undefined
  /** Which kind of agent or backend this is; informational. */
  backendId?: string | undefined
  /** Free labels (`agent`, `company` …), for {@link cancel} and for operators. */
  labels?: Record<string, string> | undefined
  /** A name several runs share, for {@link cancel} and `replaceExistingScope`. */
  scopeKey?: string | undefined
  /**
   * End the earlier runs of the same `scopeKey` first, whichever bot they belong to, and start this one when nothing of them
   * exists. If there are any, the process that is returned is `starting` until then: it has its streams but no `pid` yet, and
   * `spawn` follows. It can be cancelled meanwhile; then it never starts. Should an earlier run not be endable, it emits `error`
   * (`ERR_OWNED_SCOPE_BUSY`) and nothing is started. Default false.
   */
  replaceExistingScope?: boolean | undefined
  /** What people see in `ps`, in the registry and in messages, at most 120 characters. Default: command and arguments. */
  commandPreview?: string | undefined
  /**
   * Overall deadline in ms, counted from the moment the command runs, by its keeper: a busy event loop does not delay it. The
   * tree is ended with the reason `overall-timeout`. 0: off (default).
   */
  timeoutMs?: number | undefined
  /**
   * How long the command may be silent, in ms: nothing on stdout and stderr. Then the tree is ended with the reason
   * `no-output-timeout`. 0: off (default); agents may well be silent while they think.
   *
   * What waits unread because the bot has paused the stream, or is busy, counts as output. It may come a little late (by 2 %, by
   * 10 % if nobody reads the streams), never early. At least one of stdout and stderr must be a pipe. It is the bot that
   * listens: with `onOwnerExit: 'keep'` it does not outlive the bot.
   */
  noOutputTimeoutMs?: number | undefined
  /**
   * Time between the first signal and SIGKILL, in ms, whenever the tree is ended. Default: that of the supervisor, 5000 unless it
   * was told otherwise.
   *
   * Windows: the first signal is Ctrl+Break, or with `pty` the closing of the console. Who shares no console with the bot cannot be
   * asked, and is ended at once.
   */
  graceMs?: number | undefined
  /**
   * The bot is gone, however it went: end the tree (`'kill'`, default) or let it run (`'keep'`) until the next bot
   * adopts or reaps it, see {@link adopt}. A tree whose bot is gone gets at most 1.5 s of grace.
   *
   * Windows: `'kill'` is done by the kernel, without grace. While no bot is there, nobody watches the deadlines of a run that was kept,
   * and how it ends is not recorded.
   */
  onOwnerExit?: 'kill' | 'keep' | undefined
  /**
   * The root has exited by itself and descendants are alive: end them (`'kill'`, default) or let them run (`'keep'`). What has the
   * root's stdin can still be written to then.
   */
  onLeaderExit?: 'kill' | 'keep' | undefined
  /**
   * What holds the tree together. A keeper always does: nobody leaves, and all are ended when the bot is gone. On Linux a cgroup of the
   * run's own can do so, too: then nothing is lost even if bot, keeper and its helpers are killed together, whatever the processes have
   * done to their group and environment.
   *
   * - `'auto'` (default): a cgroup if {@link SpawnOwnedOptions.limits} are given; otherwise a keeper alone, which starts faster.
   * - `'keeper'`: never a cgroup.
   * - `'cgroup'`: a cgroup, or `spawnOwned` throws `ERR_OWNED_CGROUP`, which says why there is none and what to do. It takes cgroup v2, a
   *   place in it where the bot may write and, where systemd manages it, `Delegate=yes` in the bot's unit.
   *
   * Windows: always a Job Object, which nobody leaves; `'cgroup'` throws.
   */
  containment?: 'auto' | 'keeper' | 'cgroup' | undefined
  /**
   * What the whole tree may use together. On Linux it needs a cgroup whose controllers can be enabled: if that is not to be had,
   * `spawnOwned` throws `ERR_OWNED_CGROUP`, and nothing was started. On Windows the run's job has them.
   */
  limits?: RunLimits | undefined
  /**
   * Gives the command a terminal instead of pipes: it is 0, 1 and 2 of the command and controls its session. Everything else about
   * the run is as with pipes. Default false.
   *
   * - `stdout` is what the terminal says, `stdin` is what is typed, `stderr` is null.
   * - Both push back: what is not read is not lost and holds the command up; what is written waits until it is read.
   * - `stdin.end()` types Ctrl-D. `stdin.write('\x03')` types Ctrl-C.
   * - `stdout` ends when the tree is extinct and all output was read. Whoever destroys it hangs the terminal up.
   * - A shell that ignores SIGTERM at its terminal is sent SIGHUP when the tree is ended, as soon as nobody but it is left.
   *
   * `TERM` is `pty.name` if that is given, else what `env` says if that is given, else `xterm-256color`; the bot's own `TERM`,
   * `TERMCAP`, `LINES` and `COLUMNS` are not passed on.
   *
   * Together with `stdio`, with `detached` or with `onOwnerExit: 'keep'` it is an error: nothing is started.
   *
   * Windows: a pseudo-console. It draws the output anew; `stdin.end()` types nothing.
   */
  pty?: boolean | PtyOptions | undefined
}

/** What a run is known by, its deadlines and its grace: what every adapter takes beside the options of what it stands in for. */
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

/** A command's terminal. */
export interface PtyOptions {
  /** Its width in characters, 1 to 65535. Default 80. */
  cols?: number | undefined
  /** Its height in lines, 1 to 65535. Default 24. */
  rows?: number | undefined
  /** What kind of terminal it is, as terminfo names it: `TERM`, whatever `env` says. */
  name?: string | undefined
}

/** See {@link SpawnOwnedOptions.limits}. */
export interface RunLimits {
  /**
   * `memory.max`: beyond it the kernel takes memory back, and if it cannot, kills. Rounded down to whole pages by the kernel. Windows: what
   * all of the job may have committed; beyond it allocations fail.
   */
  memoryBytes?: number | undefined
  /** `pids.max`: beyond it `fork` fails with EAGAIN. Threads count as well. Windows: processes only; beyond it none is created. */
  processes?: number | undefined
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
  /**
   * Moves every deadline that the run has so many ms further: `timeoutMs` for good, `noOutputTimeoutMs` for the silence that lasts
   * now. Returns whether there was still something to be moved: false if the run is not running any more.
   *
   * @throws `ERR_OWNED_NO_DEADLINE` if it has none.
   */
  extendDeadline(ms: number): boolean
  /**
   * Changes the size of the run's terminal. Whoever is in its foreground hears of it (SIGWINCH). Both 1 to 65535.
   *
   * @throws `ERR_OWNED_NO_TERMINAL` if it has none, `ERR_OWNED_TERMINAL_GONE` if the root has exited or `stdout` was destroyed.
   */
  resize(cols: number, rows: number): void
  /** What the whole tree uses now. All zero if there is none. */
  usage(): Promise<RunUsage>
  /** `await using`: cancels the run and waits until its tree is gone. */
  [Symbol.asyncDispose](): Promise<void>
}

/** What the processes of a tree use. */
export interface RunUsage {
  /** How many are alive. */
  processes: number
  /** User and system time since the run's start, including that of processes which are gone. */
  cpuMs: number
  /** Resident memory of the living ones. What several of them share is counted for each. */
  rssBytes: number
}

/** What `spawnOwned` returns when all three standard streams are pipes. */
export type OwnedProcessWithStreams = OwnedProcess & ChildProcessWithoutNullStreams

/** An {@link OwnedProcess} with the given streams. */
export type OwnedProcessByStdio<
  I extends import('node:stream').Writable | null,
  O extends import('node:stream').Readable | null,
  E extends import('node:stream').Readable | null,
> = OwnedProcess & ChildProcessByStdio<I, O, E>

/** What `spawnOwned` returns for a command with a terminal. */
export type OwnedTerminal = OwnedProcessByStdio<
  import('node:stream').Writable,
  import('node:stream').Readable,
  null
>

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
  /** The root ended by itself, but a descendant had left its session and lived on. It was ended too. Not on Windows: nobody leaves a job. */
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
  /** A deadline has ended it, overall or for silence. */
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
  /** Names this process and no later one with the same number, see {@link isSameProcess}. */
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
 * Looks at the caller's own runs and at every run and registered process in the registry, whichever bot it belongs to and
 * whether or not that bot lives. The owner of a run hears of it: its `wait()` resolves with the reason that was asked for.
 *
 * A filter without a criterion (`{}`, `{ labels: {} }`) rejects with `ERR_OWNED_EMPTY_FILTER`: it never means "everything".
 * If nothing at all could be done (another user's processes, say) it rejects with `ERR_OWNED_CANCEL_FAILED`; if a part
 * could not, that part is in the `survivors` of its exit.
 */
export function cancel(target: RunTarget, options?: CancelOptions): Promise<CancelResult>

/** A run id, a process, or all runs that match every criterion of a filter. */
export type RunTarget = string | OwnedProcess | AdoptedRun | RunFilter

/** Every criterion that is given must match. Anything else is an error. */
export interface RunFilter {
  runId?: string | undefined
  sessionId?: string | undefined
  scopeKey?: string | undefined
  /** That of the root, or of the registered process. */
  pid?: number | undefined
  /** Runs that have all of these labels. */
  labels?: Record<string, string> | undefined
}

export interface CancelOptions {
  /** Default: the run's own `graceMs`. */
  graceMs?: number | undefined
  /** The first signal. Default SIGTERM. SIGKILL skips the grace. Windows: whichever it is, Ctrl+Break, and this is what is told. */
  signal?: NodeJS.Signals | undefined
  /** What {@link RunExit.reason} is to say. Default `manual-cancel`. */
  reason?: TerminationReason | undefined
}

export interface CancelResult {
  /**
   * `cancelled`: at least one run was ended by a cancel. `already-exited`: the roots had exited by themselves before the cancel
   * could reach them. `not-found`: nothing matches, and nothing was touched.
   */
  outcome: 'cancelled' | 'already-exited' | 'not-found'
  /** One for each run that was meant: those that live or, if none does, those that are known to have ended. */
  exits: RunExit[]
}

// ---- the registry ---------------------------------------------------------------------------------------------------

/**
 * Enters a process that was started by other means into the registry, so that it can be cancelled, and is reaped if this bot
 * dies. Its identity, and the group it is really in, are captured now; hence synchronous.
 *
 * Ending it ends its group if it leads one, and otherwise the process and its descendants. The entry goes when the process
 * has ended, or with {@link unregisterProcess}.
 *
 * Windows: it is put into a Job Object; what it starts from then on is ended with it.
 *
 * @throws if there is no such process, if it is one that must never be signalled (PID 1, this process, its
 * ancestors), if the run id is in use, or if the registry cannot be written: then no entry is left.
 */
export function registerProcess(entry: RegisterEntry): RunRecord

/** A process that was started by other means. */
export interface RegisterEntry {
  pid: number
  /** As in {@link SpawnOwnedOptions}, like all that follow. */
  runId?: string | undefined
  sessionId?: string | undefined
  backendId?: string | undefined
  scopeKey?: string | undefined
  labels?: Record<string, string> | undefined
  /** Default: the process's name as the kernel knows it. A command line may hold secrets. */
  commandPreview?: string | undefined
  graceMs?: number | undefined
}

/**
 * Removes the entries of processes that this process has registered; they live on. Returns whether there were any.
 *
 * @throws `ERR_OWNED_STILL_OWNED` if the target is, or includes, a run that this process has started with {@link spawnOwned}:
 * its entry goes when it ends. Nothing was removed then.
 */
export function unregisterProcess(target: RunTarget): boolean

/** Every live run in the registry, whichever bot it belongs to, oldest first. Without a filter, or with `{}`: all of them. */
export function list(filter?: RunFilter): RunRecord[]

/**
 * The same with what there is of each right now: who answers for it, and every living process of its tree. Looks at all processes of the
 * system once, off the event loop.
 */
export function survey(filter?: RunFilter): Promise<SurveyedRun[]>

/** A run, and what was seen of it. */
export interface SurveyedRun {
  readonly record: RunRecord
  /** `unknown`: it cannot be judged from here, for instance because it is in another container. */
  readonly owner: 'me' | 'alive' | 'dead' | 'unknown'
  /** Oldest first. */
  readonly members: readonly SurveyedProcess[]
}

/** A living process of a run. */
export interface SurveyedProcess {
  readonly pid: number
  readonly ppid: number
  readonly startToken: string
  /** The command's name as the kernel knows it. */
  readonly command: string
  readonly ageMs: number
  /** User and system time. */
  readonly cpuMs: number
  readonly rssBytes: number
  /** It has left the run's session; it is ended with the run all the same. */
  readonly escaped: boolean
}

/** An entry of the registry: a run or a registered process. Frozen. */
export interface RunRecord {
  /** The root's, or that of the registered process. */
  readonly pid: number
  /** When it was started; for a registered process, when that was. */
  readonly startedAt: number
  readonly sessionId: string | null
  /** The owner's. */
  readonly botPid: number
  /** At most 120 characters, without values of the environment. */
  readonly commandPreview: string
  readonly runId: string
  /** `exited`: ended while it had no owner, see {@link RunRecord.exit}. */
  readonly state: RunState
  /** The root's identity. `null`: an entry of another program, whose process can only be told by its age. */
  readonly startToken: string | null
  /** The owner's identity. */
  readonly botStartToken: string | null
  /** The owner's {@link Supervisor.instanceId}. */
  readonly ownerInstanceId: string | null
  /** Until then an owner counts as alive of whom that cannot be found out. */
  readonly leaseExpiresAtMs: number | null
  /** The process group the root is in; it is the run's only if it equals `pid`. `null` on Windows, and for a group of another PID namespace. */
  readonly pgid: number | null
  /**
   * What holds the tree together: a keeper (a run of {@link spawnOwned}: nobody leaves), a keeper and a cgroup, the group that a
   * registered process leads, or just the registered process and its descendants. On Windows a Job Object: nobody leaves.
   */
  readonly containment: 'keeper' | 'cgroup' | 'group' | 'process' | 'job'
  /** The run's keeper, and the socket at which it can be asked. On Windows the bot, and its named pipe. */
  readonly keeper?: { readonly startToken: string; readonly address: string }
  /** The directory of the run's cgroup. */
  readonly cgroup?: string
  /** The name of the run's Job Object, if it is to be found by another bot. */
  readonly job?: string
  /** On Windows, of a run that may outlive its bot: what whoever adopts it has to know. The deadline counts from `startedAt`. */
  readonly rules?: {
    readonly onLeaderExit: 'kill' | 'keep'
    readonly timeout?: { readonly afterMs: number; readonly signal: number }
  }
  readonly backendId?: string
  readonly scopeKey?: string
  /** The name of the service that it is, see {@link ensureService}. */
  readonly service?: string
  /** Left out if there are none. */
  readonly labels?: Readonly<Record<string, string>>
  readonly graceMs: number
  readonly onOwnerExit: 'kill' | 'keep'
  readonly createdAtMs: number
  readonly updatedAtMs: number
  readonly lastOutputAtMs: number | null
  /** Start tokens of processes in a registered process's group, seen while it lived: they vouch for the group later. On Windows those of a kept run. */
  readonly members?: readonly string[]
  /** How it ended, if it had no owner then. */
  readonly exit?: RecordedExit
}

/** What a keeper has written down about the end of a run without an owner. */
export interface RecordedExit {
  readonly atMs: number
  /** As in {@link RunExit}. */
  readonly reason: TerminationReason
  /** What ended it. */
  readonly ending:
    | 'root-exit'
    | 'cancel'
    | 'overall-timeout'
    | 'no-output-timeout'
    | 'owner-exit'
    | 'shutdown'
    | 'lost'
  /** The limit of the deadline that has. */
  readonly limitMs?: number
  readonly exitCode: number | null
  /** The number of the signal that ended the root. */
  readonly signal: number | null
  /** How many processes could not be ended. */
  readonly survivors: number
}

// ---- reaping --------------------------------------------------------------------------------------------------------

/**
 * Ends what bots that are gone have left behind, and only that: every entry of the registry is looked at, and nothing else is.
 * To be called when a bot starts.
 *
 * An entry whose owner lives is left alone. One whose processes are dead is dropped. A process that is not, or cannot be
 * proven to be, the recorded one (its PID was reused, it is another namespace's) is skipped. What remains is ended, or what
 * `policy` says. Of several bots that reap at the same time one gets each entry.
 *
 * @param botPid - The caller. Default `process.pid`; recognised by its start token too, so that a bot that has the same
 * PID as the one before (in a container) is another one.
 */
export function reapOrphans(botPid?: number, options?: ReapOptions): Promise<ReapReport>
export function reapOrphans(options: ReapOptions): Promise<ReapReport>

export interface ReapOptions {
  /** Say what would be done, and change nothing, on disk or alive. Default false. */
  dryRun?: boolean | undefined
  /** Default: each entry's own. */
  graceMs?: number | undefined
  /**
   * What becomes of runs that would be ended. `'terminate'` (default), `'adopt'` (see {@link adopt}), or a function that
   * is asked for each of them, synchronously and before anything is touched; if it throws, nothing is.
   */
  policy?: 'terminate' | 'adopt' | ((record: RunRecord) => 'terminate' | 'adopt' | 'leave') | undefined
  /** Also take runs whose owner is alive but has not renewed its lease in time (stopped, asleep). Default false. */
  stealFromLive?: boolean | undefined
}

/**
 * What was found and done. An entry is in at most one of the lists; those of live bots, and those that another bot was
 * faster to take, are in none. All are in `decisions`.
 */
export interface ReapReport {
  /** Roots of the trees that were ended here, each once. Empty in a dry run. */
  killed: number[]
  /** Of entries whose processes were gone. In a dry run too. */
  alreadyDead: number[]
  /**
   * Left alone although its bot is gone: the PID is somebody else's now, identity cannot be proven, the process must not be
   * signalled, or the policy said so. In a dry run too.
   */
  skipped: { pid: number; reason: string }[]
  failed: { pid: number; error: string }[]
  /** Now ours; {@link adopt} gives their handles. */
  adopted: RunRecord[]
  /** One for each entry that was looked at. */
  decisions: ReapDecision[]
}

/** What was decided about an entry, why, and what came of it. */
export interface ReapDecision {
  runId: string
  pid: number
  /** `drop-reused`: the entry's process is gone, and a stranger has its number. The stranger is left alone. */
  decision: 'leave' | 'drop' | 'drop-reused' | 'skip' | 'end' | 'adopt'
  /**
   * `planned`: a dry run, nothing was done. `taken`: another bot was faster. `already-dead`: the entry was dropped, because
   * there was nothing, or by then nothing any more, to be ended.
   */
  outcome: 'planned' | 'left' | 'skipped' | 'already-dead' | 'ended' | 'adopted' | 'taken' | 'failed'
  dryRun: boolean
  /** Whether the policy has changed what would have been `end`. */
  byPolicy: boolean
  /** For people. */
  reason: string
  /** Why it failed; or that it is over, and could not be removed from the registry yet. */
  error?: string
  /** What was known: the state of owner, lease, root, group, keeper …, a word each. */
  facts: Readonly<Record<string, string>>
  record: RunRecord
}

// ---- orphans and suspects -------------------------------------------------------------------------------------------

/**
 * Looks for orphans, and changes nothing. *Confirmed* ones are in the registry, and proven: what {@link reapOrphans} would end.
 * *Suspected* ones are not: a process of this user whose name matches a pattern **and** which works in the project's directory or
 * descends from a bot that is alive. Runs of other registries, bots, we and those above us are never suspects.
 */
export function findOrphans(options?: FindOrphansOptions): Promise<OrphanFindings>

/** What makes a process suspicious. */
export interface SuspectOptions {
  /**
   * What the name of a process must be; `*` stands for anything. Its program and, if that runs others (`node`, `npx`, `python` …), the
   * script or package are names; other arguments are not. A string is compared without regard to case, a regular expression is
   * tested on each name. Default {@link suspectPatterns}.
   */
  patterns?: readonly (string | RegExp)[] | undefined
  /**
   * The project's directory. Default: the current one, unless that is the root of the file system. On Windows nobody can see where
   * others work: only who descends from a bot is suspected there.
   */
  projectDir?: string | undefined
}

export interface FindOrphansOptions extends SuspectOptions {
  /** Whether to look for suspects at all. Default true. */
  suspects?: boolean | undefined
}

export interface OrphanFindings {
  confirmed: ReapDecision[]
  suspected: Suspect[]
}

/** A process that may be an orphan. Nothing proves it. */
export interface Suspect {
  pid: number
  /** Names it once and for all, see {@link captureStartToken}. */
  startToken: string
  /** Its command line, at most 120 characters. */
  command: string
  ageMs: number
  ppid: number
  /** Where it works; `null` if that cannot be found out. */
  cwd: string | null
  /** The one that its name matches. */
  pattern: string
  /** For people: `matches "claude" and runs in /project`. */
  reason: string
}

/**
 * Ends orphans: those that {@link reapOrphans} would end and, only with `force`, suspects. Each suspect is looked at once more, and
 * named by its identity at every signal.
 */
export function endOrphans(options?: EndOrphansOptions): Promise<OrphanReport>

export interface EndOrphansOptions extends SuspectOptions {
  /** Say what would be done, and change nothing, on disk or alive. Default false. */
  dryRun?: boolean | undefined
  /** End suspects, too. Default false: they are only reported. */
  force?: boolean | undefined
  /** Leave those that were started less than this long ago. Default 0. */
  olderThanMs?: number | undefined
  /** Time between SIGTERM and SIGKILL. Default: each entry's own, and the supervisor's for suspects. */
  graceMs?: number | undefined
}

export interface OrphanReport extends ReapReport {
  suspected: SettledSuspect[]
}

export interface SettledSuspect extends Suspect {
  /** `reported`: nothing was done. `skipped`: it was to be ended, and `error` says why it was left alone. */
  outcome: 'reported' | 'ended' | 'skipped' | 'failed'
  error?: string
}

/** The default patterns: CLI agents and MCP servers. Add to them with `[...suspectPatterns, 'mine']`. */
export const suspectPatterns: readonly string[]

/**
 * Looks for orphans from now on: at once when a bot of this registry dies, and every interval. Each is told once, as `orphan:detected`
 * on the supervisor and in the event log. With `autoKill` confirmed ones are ended as {@link reapOrphans} does it. Suspects are never
 * touched.
 *
 * Does not keep the event loop alive. Runs whose keeper is just ending them, because their bot has died, are no orphans yet.
 */
export function watchOrphans(options?: WatchOptions): OrphanWatch

export interface WatchOptions extends SuspectOptions {
  /** Between looks that nothing has called for. At least 100. Default 60000. */
  intervalMs?: number | undefined
  /** The same as `intervalMs`. */
  interval?: number | undefined
  /** How old a confirmed orphan must be, since it was started, before `autoKill` ends it. Default 0. */
  maxAgeMs?: number | undefined
  /** The same as `maxAgeMs`. */
  maxAge?: number | undefined
  /** End confirmed orphans. Default false. */
  autoKill?: boolean | undefined
  /** Default: each entry's own. */
  graceMs?: number | undefined
}

export interface OrphanWatch {
  readonly stats: OrphanWatchStats
  /** Looks now. Whoever asks while it looks gets the next look. After {@link OrphanWatch.stop} nobody is told of or ended. */
  check(): Promise<OrphanFindings>
  /** Ends the watch. Nobody is told of or ended from here on, but for those that are being ended. */
  stop(): void
  /** `using`: as `stop`. */
  [Symbol.dispose](): void
}

export interface OrphanWatchStats {
  watching: boolean
  /** When the last look was over; `null` before. */
  lastCheck: number | null
  /** Confirmed and suspected ones, each once. */
  orphansDetected: number
  orphansKilled: number
}

/**
 * Takes over a run that has outlived its bot (`onOwnerExit: 'keep'`). The handle is the same however often it is asked for, and
 * also for runs that {@link reapOrphans} has adopted. For a run that has ended meanwhile it says how.
 *
 * What the run writes goes where its stdio pointed: files remain, pipes to the dead bot are gone.
 *
 * Rejects with `ERR_OWNED_NOT_FOUND`, with `ERR_OWNED_OWNER_ALIVE` if its bot lives, and with `ERR_OWNED_ALREADY_OWNED` if it
 * is the caller's.
 */
export function adopt(runId: string): Promise<AdoptedRun>

/** A run that was another bot's. It does not keep the event loop alive unless somebody waits for its end. */
export interface AdoptedRun {
  readonly runId: string
  readonly pid: number
  /** As it was when it was adopted. */
  readonly record: RunRecord
  readonly state: RunState
  /** As {@link OwnedProcess.wait}. */
  wait(): Promise<RunExit>
  /** As {@link OwnedProcess.cancel}. */
  cancel(options?: CancelOptions): Promise<RunExit>
  /** `await using`: cancels the run and waits until its tree is gone. */
  [Symbol.asyncDispose](): Promise<void>
}

// ---- services -------------------------------------------------------------------------------------------------------

/**
 * Starts a long-lived worker unless it is up, and resolves when it is. There is one of each name in a registry, however many callers and
 * processes ask at once: one of them starts it, the others wait for it, or take over if the starter dies.
 *
 * It is up if the recorded process is alive, by its identity, _and_ answers: at `port`, to `ready()`, or both. A stranger who has the port is
 * never taken for it. If it is alive but does not get ready in time, it is ended and started again.
 *
 * A service belongs to nobody: it survives its starter, is left alone by {@link reapOrphans} and {@link shutdown}, and does not keep the event
 * loop alive. {@link stopService}, {@link Service.stop} and {@link cancel} end it, from any process.
 *
 * @example
 * ```ts
 * const worker = await ensureService({ name: 'memory', command: process.execPath, args: ['worker.mjs'], port: 37777 })
 * ```
 *
 * Rejects, and then nothing that this call has started is left:
 * - `ERR_OWNED_SERVICE_FAILED`: not up after `attempts`; the message says how the last one ended.
 * - `ERR_OWNED_PORT_TAKEN`: somebody else has the port.
 * - `ERR_OWNED_SERVICE_STOPPED`: somebody has stopped it before it was ready.
 * - `ERR_OWNED_SERVICE_UNKNOWN`: one is recorded that cannot be judged from here (another PID namespace).
 * - `ERR_OWNED_SCOPE_BUSY`: what is left of an earlier one cannot be ended, or something else has the scope `service:<name>`.
 * - the system's error (`ENOENT`, `EACCES` …) if the command cannot be executed; that is not tried again.
 * - an `AbortError` if `signal` fires.
 */
export function ensureService(options: ServiceOptions): Promise<Service>

/** What {@link ensureService} starts, and how it is known to be up. Other options than these are an error. */
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
  /** Names it in the registry. Letters, digits and `. _ -`, at most 128. */
  name: string
  /** It must stay in the foreground: a command that forks and exits has ended. */
  command: string
  args?: readonly string[] | undefined
  /**
   * The TCP port at which it answers when it is up. This or `ready` must be given. On Linux whoever answers must be a process of the
   * service's own tree; elsewhere that cannot be told, and it is enough that the service is alive.
   */
  port?: number | undefined
  /** Where that port is. Default `127.0.0.1`. */
  host?: string | undefined
  /** Whether it is up, asked again and again. To reject is to say no. With `port`: asked when that answers, and both must hold. */
  ready?: (() => boolean | Promise<boolean>) | undefined
  /** How long each attempt may take. Default 10000. */
  readyTimeoutMs?: number | undefined
  /** How many instances may fail to come up, whoever has started them. Default 3. */
  attempts?: number | undefined
  /** Between the first attempt and the second; doubled each time. Default 250. */
  backoffMs?: number | undefined
  /** What it writes to stdout and stderr is appended to this file. Default: discarded. */
  logPath?: string | undefined
  /** Gives up. What this call has started and is not up yet is ended. */
  signal?: AbortSignal | undefined
}

/** A service that is up. */
export interface Service {
  readonly name: string
  readonly runId: string
  readonly pid: number
  /** As it was when the service was found to be up. */
  readonly record: RunRecord
  /** Whether this call has started it. */
  readonly started: boolean
  /** Ends this very instance, and not one that has been started since. Resolves when nothing of it is left. */
  stop(options?: CancelOptions): Promise<RunExit>
}

/** Ends a service by its name, whoever has started it, and resolves when nothing of it is left. */
export function stopService(name: string, options?: CancelOptions): Promise<CancelResult>

// ---- shutting down --------------------------------------------------------------------------------------------------

/**
 * Ends everything the supervisor answers for, all at once: the runs it has started or taken over, those that wait for their scope,
 * and the processes it has registered. SIGTERM, `graceMs`, SIGKILL; by default nothing is left after 6 s. Runs of other
 * supervisors are not touched, and neither are services.
 *
 * Until it resolves, `spawnOwned`, `registerProcess` and `adopt` are refused with `ERR_OWNED_SHUTTING_DOWN`; afterwards they are as
 * ever. Whoever calls it meanwhile gets the same result, and hurries it with a shorter grace. It keeps the event loop alive.
 *
 * Never rejects because of what it finds: what could not be ended is in `survivors`.
 */
export function shutdown(options?: ShutdownOptions): Promise<ShutdownReport>

export interface ShutdownOptions {
  /** Time between SIGTERM and SIGKILL for all of them, whatever their own. Default 5000. */
  graceMs?: number | undefined
  /** Leave runs with `onOwnerExit: 'keep'` running; they are this bot's as before. Default false: they are ended too. */
  leaveKept?: boolean | undefined
}

export interface ShutdownReport {
  /** One for each run and registered process that was ended, or was about to end anyway. */
  exits: RunExit[]
  /** Those of all exits. Empty: verified, nothing is left. */
  survivors: ProcessInfo[]
  durationMs: number
}

/**
 * Has the supervisor shut down when the bot is told to go. On SIGINT, SIGTERM or SIGHUP: {@link shutdown}, and then `process.exit`
 * with the usual code (130, 143, 129). A second signal hurries: SIGKILL now. When the event loop runs empty, what was unref'ed and
 * still lives is shut down too; the exit code stays what it is.
 *
 * Off unless it is called. The bot's own handlers are called as ever; one that needs more time than the shutdown does wants
 * `exit: false`, and exits itself. A second call replaces the options of the first. If several supervisors have handlers, the bot
 * exits when all of them are done.
 *
 * @returns a function that removes the handlers, so that signals have the effect they had before.
 * @throws `ERR_OWNED_NOT_MAIN_THREAD` in a worker, where signals are never heard of.
 */
export function installSignalHandlers(options?: SignalHandlerOptions): () => void

export interface SignalHandlerOptions {
  /** Default SIGINT, SIGTERM and SIGHUP. */
  signals?: readonly NodeJS.Signals[] | undefined
  /** As in {@link ShutdownOptions}. */
  graceMs?: number | undefined
  /** As in {@link ShutdownOptions}, but true by default: to outlive the bot is what those runs were started for. */
  leaveKept?: boolean | undefined
  /** Whether the process exits after a signal, once everything is gone. Default true; false leaves that to the bot. */
  exit?: boolean | undefined
}

// ---- identity -------------------------------------------------------------------------------------------------------

/**
 * Names a process once and for all: pid, start time, PID namespace and boot in one string. `null` if there is no such
 * process (a zombie is none) or if that cannot be found out.
 */
export function captureStartToken(pid: number): string | null

/** Whether the process that a start token names is alive. False if that is not certain. */
export function isSameProcess(token: string): boolean

/**
 * What this system has to hold trees together with. On Linux `keeper`, `cgroup`, `pidfd` and `pidfd-group`; on Windows `job` and
 * `handle`.
 */
export function capabilities(): Capability[]

export interface Capability {
  name: string
  available: boolean
  /** What it is good for, or why it is not to be had and what would change that. */
  why: string
}

// ---- supervisors ----------------------------------------------------------------------------------------------------

/** Makes a supervisor with a registry of its own, or several on one registry. Touches no disk. */
export function createSupervisor(options?: SupervisorOptions): Supervisor

export interface SupervisorOptions {
  /**
   * The registry's file. In a durable folder, which is made if need be; never in the temporary one. Made absolute when the
   * supervisor is made. Default: `$SPAWN_OWNED_REGISTRY`, else `data/process-registry.json` in the current directory.
   */
  registryPath?: string | undefined
  /** For runs and registered processes that give none. Default 5000. */
  graceMs?: number | undefined
  /** How long an owner that is not heard of counts as alive; it is heard of every third of that. At least 1000. Default 30000. */
  leaseMs?: number | undefined
  /**
   * Where it is written down what {@link reapOrphans}, {@link endOrphans} and {@link watchOrphans} find and do, one line for each
   * decision about an orphan. Longer than 1 MiB, it is moved to the same name with `.1`. `null`: nowhere. Default: `orphan-events.log` beside the registry.
   */
  eventLogPath?: string | null | undefined
}

/** Owns runs. Its methods need no `this`: `const { spawnOwned } = createSupervisor()`. */
export interface Supervisor extends EventEmitter {
  /** Names it in the registry. */
  readonly instanceId: string
  /** Absolute. */
  readonly registryPath: string
  readonly spawnOwned: typeof spawnOwned
  readonly cancel: typeof cancel
  readonly registerProcess: typeof registerProcess
  readonly unregisterProcess: typeof unregisterProcess
  readonly list: typeof list
  readonly survey: typeof survey
  readonly reapOrphans: typeof reapOrphans
  /** The same as {@link Supervisor.reapOrphans}. */
  readonly reconcileOrphans: typeof reapOrphans
  readonly findOrphans: typeof findOrphans
  readonly endOrphans: typeof endOrphans
  readonly watchOrphans: typeof watchOrphans
  readonly adopt: typeof adopt
  readonly ensureService: typeof ensureService
  readonly stopService: typeof stopService
  readonly shutdown: typeof shutdown
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

// ---- events and counters --------------------------------------------------------------------------------------------

/**
 * What a supervisor tells, whether or not it was asked: as `event` on the supervisor, and on the `diagnostics_channel`
 * `spawn-owned:<type>`, such as `spawn-owned:exited`, where those of all supervisors in the process are.
 */
export type OwnedEvent = RunEvent | ShutdownEvent | ReapDecisionEvent | RegistryEvent | LeaseEvent

/** Something that has happened to a run. */
export type RunEvent =
  | SpawnEvent
  | StartedEvent
  | OutputEvent
  | DeadlineWarningEvent
  | ExitingEvent
  | EscapeEvent
  | ExitedEvent

/** What every event about a run has. */
export interface AboutRun {
  atMs: number
  runId: string
  /** Undefined if it was never started. */
  pid: number | undefined
  sessionId: string | undefined
  scopeKey: string | undefined
  labels: Readonly<Record<string, string>>
}

/** It is written down, and its command is being executed. */
export interface SpawnEvent extends AboutRun {
  type: 'spawn'
  commandPreview: string
}

/** The command runs, and its deadlines count. */
export interface StartedEvent extends AboutRun {
  type: 'started'
}

/** The bot has read some of its output. At most one in a second. */
export interface OutputEvent extends AboutRun {
  type: 'output'
}

/** Four fifths of a deadline are over. {@link OwnedProcess.extendDeadline} moves it. */
export interface DeadlineWarningEvent extends AboutRun {
  type: 'deadline-warning'
  deadline: 'overall' | 'no-output'
  limitMs: number
  remainingMs: number
}

/** Its tree is being ended: cancelled, out of time, shut down. Not for a run whose root has ended by itself. */
export interface ExitingEvent extends AboutRun {
  type: 'exiting'
  reason: TerminationReason
}

/** Descendants had left the run's session when its root ended by itself. They were ended. */
export interface EscapeEvent extends AboutRun {
  type: 'escape'
  escaped: readonly ProcessInfo[]
}

/** Nothing of it exists any more, or it could not be started. Once for each run. */
export interface ExitedEvent extends AboutRun {
  type: 'exited'
  exit: RunExit
}

/** A {@link shutdown} begins, or is over. */
export type ShutdownEvent = ShutdownBeginEvent | ShutdownEndEvent

export interface ShutdownBeginEvent {
  type: 'shutdown'
  phase: 'begin'
  atMs: number
  /** How many runs and registered processes are to be ended. */
  runs: number
  graceMs: number
  leaveKept: boolean
}

export interface ShutdownEndEvent {
  type: 'shutdown'
  phase: 'end'
  atMs: number
  /** How many have ended. */
  runs: number
  /** How many processes could not be ended. */
  survivors: number
  durationMs: number
}

/** One for each of {@link ReapReport.decisions}. */
export interface ReapDecisionEvent extends ReapDecision {
  type: 'reap-decision'
}

/**
 * What {@link reapOrphans} and {@link endOrphans} tell of each orphan, on the supervisor: `orphan:detected` before anything is
 * signalled, if something of it may be alive, and then one of the others. Entries whose processes are dead are `orphan:skipped`
 * only. A dry run detects, and nothing else; and so does a watch, of what it leaves alone.
 */
export type OrphanEventName = 'orphan:detected' | 'orphan:killed' | 'orphan:skipped' | 'orphan:failed'

/** An orphan, as {@link SupervisorOptions.eventLogPath} has it too. */
export interface OrphanEvent {
  atMs: number
  pid: number
  /** `null` for a suspect. */
  runId: string | null
  /** {@link RunRecord.commandPreview}, or a suspect's command line. */
  command: string
  /** Since it was started; `null` if nobody knows when that was. */
  ageMs: number | null
  /**
   * `confirmed`: it is the recorded run, and may be ended. `unproven`: whether it is cannot be told. `refused`: a process that must
   * not be signalled. `reused`: its PID is somebody else's now. `dead`: nothing is left of it. `suspected`: no entry names it.
   */
  status: 'confirmed' | 'unproven' | 'refused' | 'reused' | 'dead' | 'suspected'
  /** For people: why it was decided so, or why it failed. */
  reason: string
  dryRun: boolean
}

/** Something is wrong with the registry, or right again. If nobody listens it is a warning, once for each kind. */
export interface RegistryEvent {
  type: 'registry'
  /**
   * `corrupt`, `torn`, `unwritable`, `unreadable`; `event-log`: what happens to orphans cannot be written down; `watch`: they cannot be
   * looked for
   */
  kind: string
  /** For people: what happened, and what to do. */
  message: string
  path: string
}

/** Other bots may take these runs, or have: this one could not renew its lease in time. */
export interface LeaseEvent {
  type: 'lease'
  kind: 'lost'
  message: string
  runIds: readonly string[]
}

/** What has happened to the supervisor's runs so far. Counted on the native side: a busy event loop loses nothing. */
export function metrics(): Metrics

/** The same in Prometheus' text format, to be served at `/metrics`. */
export function metricsText(): string

/** Counters, but for `run_live`. */
export interface Metrics {
  /** Runs that were started. */
  run_spawn_total: number
  /** Runs that are over, by reason. */
  run_exit_total: Record<TerminationReason, number>
  /** Runs whose deadline has passed. */
  run_timeout_total: Record<'overall' | 'no-output', number>
  /** Trees that had to be ended, by what it took: the first signal, or SIGKILL. */
  run_cleanup_kill_total: Record<'signal' | 'kill', number>
  /** Runs of bots that are gone which were ended or taken over. */
  run_reconcile_orphans_total: number
  /** Runs taken from an owner that was not known to be dead, its lease having expired. */
  run_lease_steal_total: number
  /** Runs whose root ended by itself and left a process outside its session. */
  run_ownership_escape_total: number
  /** Runs and registered processes that are alive. */
  run_live: number
}
