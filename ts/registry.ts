// The registry as the rest of ts/ sees it: records instead of JSON.

import type {
  Metrics,
  ProcessInfo,
  ReapDecision,
  RunFilter,
  RunRecord,
  SurveyedRun,
  TerminationReason,
} from '../index.js'
import type { Ending } from './exit.js'
import { narrowed } from './filters.js'
import { introduceAll, type NativeRegistry, settled, unread } from './native.js'

/** An entry that is to be made. */
export interface NewEntry {
  pid: number
  runId: string
  /** The caller has chosen it. */
  givenId: boolean
  sessionId?: string | undefined
  backendId?: string | undefined
  scopeKey?: string | undefined
  commandPreview?: string | undefined
  labels: Readonly<Record<string, string>>
  graceMs: number
}

/** What to do about an entry, and why. */
export interface Decided {
  readonly action: ReapDecision['decision']
  readonly reason: string
  readonly facts: ReapDecision['facts']
}

export interface PlannedDecision extends Decided {
  readonly record: RunRecord
}

/** The native side keeps what it has planned: it may be long, and to read it takes a while. */
export interface Plan {
  readonly id: number
  read(): PlannedDecision[]
}

/** As the native side tells it: `of` says which of the decisions each record's is. */
interface ToldPlan {
  decisions: Decided[]
  of: number[]
  records: RunRecord[]
}

/** What is to be done about a plan's decisions. */
export interface Order {
  id: number
  /** Whatever would be ended is to be taken over. */
  adopt: boolean
  /** What is to be done otherwise than it was planned. */
  changes: readonly (readonly [index: number, action: Decided['action']])[]
  graceMs: number | undefined
}

/** What became of an entry. */
export interface Done {
  outcome: Exclude<ReapDecision['outcome'], 'planned'>
  error?: string
  /** As it is now, if it is ours. */
  record?: RunRecord
}

/** A line of the event log. */
export interface OrphanLine {
  what: string
  pid: number
  command: string
  ageMs: number | null
  status: string
  reason: string
}

/** One that may be an orphan, if it has a name that is looked for. */
export interface NamedProcess {
  pid: number
  startToken: string
  ppid: number
  /** Its command line. */
  words: string[]
  /** Of its program, and of what that runs. */
  names: string[]
  ageMs: number
  cwd: string | null
  inProject: boolean
  /** The bot it descends from. */
  owner: number | null
}

/** Suspects that are to be ended. */
export interface Sentence {
  startTokens: string[]
  project: string | undefined
  graceMs: number
}

/** What became of one of them. */
export interface SettledSuspect {
  outcome: 'ended' | 'skipped' | 'failed'
  error?: string
}

export interface EndRequest {
  keys: string[]
  signal: number
  /** Not given: each entry's own. */
  graceMs: number | undefined
  reason: string
}

/** What became of an entry that was to be ended. */
export interface EndedRun {
  key: string
  record: RunRecord
  outcome: 'ended' | 'already-exited' | 'failed'
  ending: Ending
  reason: TerminationReason
  exitCode: number | null
  signal: number | null
  limitMs: number
  escaped: ProcessInfo[]
  survivors: ProcessInfo[]
  error?: string
}

export class Registry {
  readonly native: NativeRegistry
  #nextPlan = 0

  constructor(native: NativeRegistry) {
    this.native = native
  }

  /**
   * Every entry, also of runs that have ended and of which nobody has taken note yet. Those that a filter rules out need not be among
   * them: thousands of others take a while, on the event loop.
   */
  list(filter?: RunFilter): RunRecord[] {
    return (JSON.parse(this.native.list(filter && JSON.stringify(narrowed(filter)))) as RunRecord[]).map(
      frozen,
    )
  }

  register(entry: NewEntry): RunRecord {
    return frozen(JSON.parse(this.native.register(JSON.stringify(entry))) as RunRecord)
  }

  /** Those that match, without holding up the event loop for the others. */
  async find(filter: RunFilter): Promise<RunRecord[]> {
    return settled<RunRecord[]>(await this.native.find(JSON.stringify(filter))).map(frozen)
  }

  /** Every entry with its living processes, likewise. */
  async survey(): Promise<SurveyedRun[]> {
    const surveyed = settled<SurveyedRun[]>(await this.native.survey())
    for (const { record } of surveyed) frozen(record)
    return surveyed
  }

  /** Runs `start` as the only one, in this or another bot, who may start something in an empty scope. False: it is not empty. */
  inEmptyScope(scopeKey: string, start: () => void): boolean {
    if (!this.native.lockScope(scopeKey)) return false
    try {
      start()
    } finally {
      this.native.releaseScope()
    }
    return true
  }

  /** A run that was never started is over. */
  countUnstarted(reason: TerminationReason): void {
    this.native.countUnstarted(reason)
  }

  metrics(): Metrics {
    return JSON.parse(this.native.metrics())
  }

  metricsText(): string {
    return this.native.metricsText()
  }

  /** A plan that is not going to be carried out. */
  forget(plan: Plan): void {
    this.native.forgetPlan(plan.id)
  }

  /** The entries of this process that a target may mean. */
  own(runId: string | undefined, pid: number | undefined): RunRecord[] {
    return (JSON.parse(this.native.own(runId, pid)) as RunRecord[]).map(frozen)
  }

  /** How many of them are no longer there; only processes that were registered here can be removed. */
  unregister(records: readonly RunRecord[]): number {
    return this.native.unregister(records.map(keyOf))
  }

  /** What is to be done about the entries of bots that are gone. Changes nothing. */
  async plan(botPid: number, stealFromLive: boolean): Promise<Plan> {
    const id = this.#nextPlan++
    const told = unread<ToldPlan>(await this.native.plan(id, botPid, stealFromLive))
    return { id, read: () => decisionsOf(told()) }
  }

  /** Does what was planned, but for what the order wants otherwise. One outcome for each. */
  async carryOut(order: Order): Promise<Done[]> {
    const done = settled<Done[]>(await this.native.carryOut(JSON.stringify(order)))
    for (const { record } of done) if (record) frozen(record)
    return done
  }

  async end(request: EndRequest): Promise<EndedRun[]> {
    const ended = settled<EndedRun[]>(await this.native.end(JSON.stringify(request)))
    for (const { record } of ended) frozen(record)
    return ended
  }

  /** Whoever may be an orphan although no entry names it, by where it is or whom it descends from. */
  async suspects(project: string | undefined): Promise<NamedProcess[]> {
    return settled<NamedProcess[]>(await this.native.suspects(project))
  }

  /** Ends those that still may be. One outcome for each. */
  async endSuspects(sentence: Sentence): Promise<SettledSuspect[]> {
    return settled<SettledSuspect[]>(await this.native.endSuspects(JSON.stringify(sentence)))
  }

  /** Writes to the event log, if there is one. */
  async note(lines: readonly OrphanLine[]): Promise<void> {
    await this.native.note(JSON.stringify(lines))
  }

  flush(): void {
    this.native.flush()
  }
}

/** What tells entries apart: run ids are chosen by people. */
export function keyOf({ startToken, pid, startedAt }: RunRecord): string {
  return startToken ?? `old:${pid}:${startedAt}`
}

/** Among thousands of entries there are few decisions that differ: those that do not are shared. */
function decisionsOf({ decisions, of, records }: ToldPlan): PlannedDecision[] {
  for (const { facts } of decisions) Object.freeze(facts)
  return records.map((record, index) => {
    const { action, reason, facts } = decisions[of[index] as number] as Decided
    return { record: frozen(record), action, reason, facts }
  })
}

/** Records are handed to strangers, some of them before anything is decided. */
function frozen(record: RunRecord): RunRecord {
  const { labels, keeper, members, exit } = record
  if (labels) Object.freeze(labels)
  if (keeper) Object.freeze(keeper)
  if (members) Object.freeze(members)
  if (exit) Object.freeze(exit)
  return Object.freeze(record)
}

const unsaved = new Map<string, Registry>()

/** The file on disk shall be up to date when a bot ends normally. To be called before the registry is written to. */
export function flushAtExit(path: string, registry: Registry): void {
  if (unsaved.size === 0) process.on('exit', flushAll)
  unsaved.set(path, registry)
}

function flushAll(): void {
  // Before the files: that takes time, in which a keeper may do something with what it is told.
  introduceAll()
  for (const registry of unsaved.values()) {
    try {
      registry.flush()
    } catch {
      // The journal has everything; whoever reads the registry next reads that too.
    }
  }
}
