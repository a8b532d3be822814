// The known keys of every option object. This file is the only place that lists them.
//
// The compiler compares each list with its interface in a declaration file, in both directions.

import type { SpawnOptions } from 'node:child_process'
import type {
  CancelOptions,
  DeadlineChange,
  EndOrphansOptions,
  FindOrphansOptions,
  HistoryFilter,
  LinesOptions,
  OwnershipOptions,
  PtyOptions,
  ReapOptions,
  RegisterEntry,
  RunChanges,
  RunDefaults,
  RunFilter,
  RunLimits,
  RunOptions,
  ServiceOptions,
  ShutdownOptions,
  SignalHandlerOptions,
  SpawnOwnedOptions,
  SupervisorOptions,
  SurveyOptions,
  SuspectOptions,
  WatchOptions,
} from '../../index.js'
import type { AgentParameters } from '../../types/acp.js'
import type { SpawnerOptions } from '../../types/claude-agent-sdk.js'
import type { StdioServerParameters } from '../../types/mcp.js'
import type { IPtyForkOptions } from '../../types/node-pty.js'

type Keys<Options> = { readonly [Key in keyof Required<Options>]: true }

/** The keys of an option object. The type parameter lets the compiler tell two lists apart. */
export interface KnownKeys<Options> extends ReadonlySet<string> {
  readonly options?: Options
}

const keysOf = <Options>(keys: Keys<Options>): KnownKeys<Options> => new Set(Object.keys(keys))

// ---- objects of one function: any other key is an error -----------------------------------------

export const CANCEL = keysOf<CancelOptions>({ graceMs: true, signal: true, reason: true })

const filter: Keys<RunFilter> = { runId: true, sessionId: true, scopeKey: true, pid: true, labels: true }

export const FILTER = keysOf<RunFilter>(filter)

export const SURVEY = keysOf<SurveyOptions>({ ...filter, tree: true })

export const HISTORY = keysOf<HistoryFilter>({ ...filter, sinceMs: true, limit: true })

export const REGISTER = keysOf<RegisterEntry>({
  pid: true,
  process: true,
  startToken: true,
  runId: true,
  sessionId: true,
  backendId: true,
  scopeKey: true,
  labels: true,
  commandPreview: true,
  graceMs: true,
  timeoutMs: true,
})

export const REAP = keysOf<ReapOptions>({ dryRun: true, graceMs: true, policy: true, stealFromLive: true })

const suspect: Keys<SuspectOptions> = { patterns: true, projectDir: true }

export const FIND_ORPHANS = keysOf<FindOrphansOptions>({ ...suspect, suspects: true })

export const END_ORPHANS = keysOf<EndOrphansOptions>({
  ...suspect,
  dryRun: true,
  force: true,
  olderThanMs: true,
  graceMs: true,
})

export const WATCH = keysOf<WatchOptions>({
  ...suspect,
  intervalMs: true,
  interval: true,
  maxAgeMs: true,
  maxAge: true,
  autoKill: true,
  graceMs: true,
})

const shutdown: Keys<ShutdownOptions> = { graceMs: true, leaveKept: true }

export const SHUTDOWN = keysOf<ShutdownOptions>(shutdown)

export const SIGNAL_HANDLERS = keysOf<SignalHandlerOptions>({ ...shutdown, signals: true, exit: true })

export const SET_DEADLINE = keysOf<DeadlineChange>({ timeoutMs: true, noOutputTimeoutMs: true })

export const UPDATE = keysOf<RunChanges>({ labels: true, metadata: true })

export const LINES = keysOf<LinesOptions>({ stream: true })

export const PTY = keysOf<PtyOptions>({ cols: true, rows: true, name: true })

export const LIMITS = keysOf<RunLimits>({ memoryBytes: true, processes: true })

/** The options of a run that a service has too. The other options of a run make no sense for it. */
const serviceRun = {
  cwd: true,
  env: true,
  shell: true,
  argv0: true,
  uid: true,
  gid: true,
  windowsHide: true,
  windowsVerbatimArguments: true,
  graceMs: true,
  sessionId: true,
  backendId: true,
  labels: true,
  commandPreview: true,
  containment: true,
  limits: true,
} as const

export const SERVICE_RUN = keysOf<typeof serviceRun>(serviceRun)

export const SERVICE = keysOf<ServiceOptions>({
  ...serviceRun,
  name: true,
  command: true,
  args: true,
  port: true,
  host: true,
  ready: true,
  readyTimeoutMs: true,
  attempts: true,
  backoffMs: true,
  logPath: true,
  signal: true,
})

const ownership: Keys<OwnershipOptions> = {
  runId: true,
  sessionId: true,
  backendId: true,
  labels: true,
  scopeKey: true,
  replaceExistingScope: true,
  commandPreview: true,
  timeoutMs: true,
  noOutputTimeoutMs: true,
  graceMs: true,
}

export const AGENT_SPAWNER = keysOf<SpawnerOptions>({
  ...ownership,
  containment: true,
  limits: true,
  supervisor: true,
  signal: true,
  stderr: true,
  onRun: true,
})

// ---- objects that callers share with Node and other packages: they may contain other keys -------

export const SPAWN_OWNED = keysOf<Omit<SpawnOwnedOptions, keyof SpawnOptions>>({
  ...ownership,
  metadata: true,
  onOwnerExit: true,
  onLeaderExit: true,
  containment: true,
  limits: true,
  pty: true,
})

/** The options that `run` has in addition. */
export const RUN_ONLY = keysOf<Omit<RunOptions, keyof SpawnOwnedOptions>>({
  input: true,
  maxOutputBytes: true,
  maxOutputLines: true,
})

/** Node's options that a run interprets. */
export const SPAWN_NODE = keysOf<SpawnOptions>({
  argv0: true,
  cwd: true,
  detached: true,
  env: true,
  gid: true,
  killSignal: true,
  serialization: true,
  shell: true,
  signal: true,
  stdio: true,
  timeout: true,
  uid: true,
  windowsHide: true,
  windowsVerbatimArguments: true,
})

const { runId: _, commandPreview: __, ...sharedOwnership } = ownership

const runDefaults: Keys<RunDefaults> = {
  ...sharedOwnership,
  metadata: true,
  onOwnerExit: true,
  onLeaderExit: true,
  containment: true,
  limits: true,
  cwd: true,
  detached: true,
  env: true,
  gid: true,
  killSignal: true,
  serialization: true,
  shell: true,
  signal: true,
  timeout: true,
  uid: true,
  windowsHide: true,
  windowsVerbatimArguments: true,
}

export const RUN_DEFAULTS = keysOf<RunDefaults>(runDefaults)

export const SUPERVISOR = keysOf<SupervisorOptions>({
  ...runDefaults,
  registryPath: true,
  leaseMs: true,
  eventLogPath: true,
  historyPath: true,
})

export const ACP_AGENT = keysOf<AgentParameters>({
  ...ownership,
  containment: true,
  limits: true,
  command: true,
  args: true,
  cwd: true,
  env: true,
  shell: true,
  stderr: true,
  maxMessageBytes: true,
  supervisor: true,
  closeMs: true,
  onLeaderExit: true,
})

export const MCP_SERVER = keysOf<StdioServerParameters>({
  ...ownership,
  containment: true,
  limits: true,
  command: true,
  args: true,
  env: true,
  stderr: true,
  cwd: true,
  maxBufferSize: true,
  supervisor: true,
  closeMs: true,
  onLeaderExit: true,
})

/** Keys of node-pty that are not keys of a run, or have another form. */
const terminal = {
  name: true,
  cols: true,
  rows: true,
  encoding: true,
  handleFlowControl: true,
  flowControlPause: true,
  flowControlResume: true,
} as const

export const NODE_PTY_ONLY = keysOf<typeof terminal>(terminal)

export const NODE_PTY = keysOf<IPtyForkOptions>({
  ...ownership,
  ...terminal,
  onLeaderExit: true,
  signal: true,
  cwd: true,
  env: true,
  uid: true,
  gid: true,
})
