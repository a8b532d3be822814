// Registry: the native registry with records instead of JSON.

import type {
  Metrics,
  ReapDecision,
  RegistryProblem,
  RunFilter,
  RunRecord,
  SurveyedRun,
  TerminationReason,
} from '../../index.js'
import { type NativeEnd, type NativeRegistry, sendAllRules, settled, unread } from '../native/addon.js'
import { narrowed } from '../run/run-filters.js'

/** An entry to create. */
export interface NewEntry {
  pid: number
  /** The start token that the process must have, if the caller knows it. */
  startToken?: string | undefined
  runId: string
  /** The caller chose the run id. */
  givenId: boolean
  sessionId?: string | undefined
  backendId?: string | undefined
  scopeKey?: string | undefined
  commandPreview?: string | undefined
  labels: Readonly<Record<string, string>>
  graceMs: number
}

/** The decision about an entry, and its reason. */
export interface Decided {
  readonly action: ReapDecision['decision']
  readonly reason: string
  readonly facts: ReapDecision['facts']
}

export interface PlannedDecision extends Decided {
  readonly record: RunRecord
}

/** A plan that the native side holds. It can be long, so it is read only on request. */
export interface Plan {
  readonly id: number
  read(): PlannedDecision[]
  /** The part of the registry that could not be read. Set by `read`. */
  readonly problem: RegistryProblem | undefined
}

/** The JSON of a plan. */
interface PlanJson {
  decisions: Decided[]
  /** For each record, the index of its decision. */
  of: number[]
  records: RunRecord[]
  flaw?: Flaw | null
}

/** The part of the registry that the native side could not read. */
interface Flaw extends RegistryProblem {
  /** Differs for every content of the files. */
  id: string
}

/** A result of the native side, with the flaw that it met. */
interface Found<T> {
  found: T
  flaw?: Flaw
}

/** How to carry out a plan. */
export interface Order {
  id: number
  /** Adopt the runs that the plan would terminate. */
  adopt: boolean
  /** What a policy does with runs that the plan would terminate. */
  changes: readonly (readonly [index: number, verdict: 'adopt' | 'leave'])[]
  graceMs: number | undefined
}

/** The outcome for an entry of a plan. */
export interface Done {
  outcome: Exclude<ReapDecision['outcome'], 'planned'>
  error?: string
  /** The new record, if this supervisor owns the run now. */
  record?: RunRecord
}

/** A line for the event log. */
export interface OrphanLine {
  what: string
  pid: number
  command: string
  ageMs: number | null
  status: string
  reason: string
}

/** A process that is a suspect if a pattern matches one of its names. */
export interface NamedProcess {
  pid: number
  startToken: string
  ppid: number
  /** The command line. */
  words: string[]
  /** The names of its program, and of the script that the program runs. */
  names: string[]
  ageMs: number
  cwd: string | null
  inProject: boolean
  /** The PID of the bot that it descends from. */
  owner: number | null
}

/** The suspects to terminate. */
export interface SuspectsToEnd {
  startTokens: string[]
  project: string | undefined
  graceMs: number
}

/** The outcome for a suspect. */
export interface SettledSuspect {
  outcome: 'ended' | 'skipped' | 'failed'
  error?: string
}

export interface EndRequest {
  keys: string[]
  signal: number
  /** undefined: the grace of each entry. */
  graceMs: number | undefined
  reason: string
}

/** The outcome for an entry that was to be terminated. */
export interface EndedRun extends NativeEnd {
  key: string
  record: RunRecord
  outcome: 'ended' | 'already-exited' | 'failed'
  error?: string
}

export class Registry {
  readonly native: NativeRegistry
  #nextPlan = 0
  #report: (problem: RegistryProblem) => void
  #reported: string | undefined

  /**
   * `report` gets what cannot be read: once for each content of the files, before the call returns
   * that read it.
   */
  constructor(native: NativeRegistry, report: (problem: RegistryProblem) => void) {
    this.native = native
    this.#report = report
  }

  /** Reports the flaw of a result, and returns the result. */
  #unwrap<T>({ found, flaw }: Found<T>): T {
    this.#check(flaw)
    return found
  }

  #check(flaw: Flaw | null | undefined): RegistryProblem | undefined {
    if (!flaw) return undefined
    const { id, ...problem } = flaw
    if (id !== this.#reported) {
      this.#reported = id
      this.#report(problem)
    }
    return problem
  }

  /**
   * Returns the entries, including those of runs whose recorded end no bot has read yet.
   *
   * The filter is a hint that saves time on the event loop: entries that it excludes may be
   * missing.
   */
  list(filter?: RunFilter): RunRecord[] {
    return this.#list(filter, false)
  }

  /**
   * Returns the entries as `list` does, each with its current state.
   *
   * The entry of a run whose bot and keeper were killed contains an old state.
   */
  present(filter?: RunFilter): RunRecord[] {
    return this.#list(filter, true)
  }

  #list(filter: RunFilter | undefined, present: boolean): RunRecord[] {
    const json = this.native.list(filter && JSON.stringify(narrowed(filter)), present)
    return this.#unwrap(JSON.parse(json) as Found<RunRecord[]>).map(frozen)
  }

  register(entry: NewEntry): RunRecord {
    return frozen(JSON.parse(this.native.register(JSON.stringify(entry))) as RunRecord)
  }

  /** Returns the entries that match. It does not block the event loop. */
  async find(filter: RunFilter): Promise<RunRecord[]> {
    const found = settled<Found<RunRecord[]>>(await this.native.find(JSON.stringify(filter)))
    return this.#unwrap(found).map(frozen)
  }

  /** Returns all entries with their live processes. It does not block the event loop. */
  async survey(): Promise<SurveyedRun[]> {
    const surveyed = this.#unwrap(settled<Found<SurveyedRun[]>>(await this.native.survey()))
    for (const { record } of surveyed) frozen(record)
    return surveyed
  }

  /**
   * Calls `start` if the scope is empty, while it holds the lock of the scope.
   *
   * No other bot can start a run in the scope meanwhile. Returns false if the scope is not empty.
   */
  inEmptyScope(scopeKey: string, start: () => void): boolean {
    if (!this.native.lockScope(scopeKey)) return false
    try {
      start()
    } finally {
      this.native.releaseScope()
    }
    return true
  }

  /** Counts a run that ended before it was started. */
  countUnstarted(reason: TerminationReason): void {
    this.native.countUnstarted(reason)
  }

  metrics(): Metrics {
    return JSON.parse(this.native.metrics())
  }

  metricsText(): string {
    return this.native.metricsText()
  }

  /** Drops a plan that is not carried out. */
  forget(plan: Plan): void {
    this.native.forgetPlan(plan.id)
  }

  /** Returns the entries of this process with the run id or the PID, if given. */
  own(runId: string | undefined, pid: number | undefined): RunRecord[] {
    return (JSON.parse(this.native.own(runId, pid)) as RunRecord[]).map(frozen)
  }

  /** Replaces labels and metadata (JSON) of an entry of this process. */
  update(runId: string, pid: number, labels: Readonly<Record<string, string>>, metadata?: string): void {
    for (const record of this.own(runId, pid)) {
      this.native.update(keyOf(record), JSON.stringify(labels), metadata)
    }
  }

  /** Removes entries of processes that this process registered. Returns how many it removed. */
  unregister(records: readonly RunRecord[]): number {
    return this.native.unregister(records.map(keyOf))
  }

  /** Plans what to do about the entries of bots that are gone. Changes nothing. */
  async plan(botPid: number, stealFromLive: boolean): Promise<Plan> {
    const id = this.#nextPlan++
    const parse = unread<PlanJson>(await this.native.plan(id, botPid, stealFromLive))
    let problem: RegistryProblem | undefined
    const read = () => {
      const plan = parse()
      problem = this.#check(plan.flaw)
      return decisionsOf(plan)
    }
    return {
      id,
      read,
      get problem() {
        return problem
      },
    }
  }

  /** Carries out a plan, with the changes of the order. Returns one outcome per decision. */
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

  /**
   * Returns processes that can be orphans without an entry, by their directory or their ancestors.
   */
  async suspects(project: string | undefined, toEnd: boolean): Promise<NamedProcess[]> {
    return settled<NamedProcess[]>(await this.native.suspects(project, toEnd))
  }

  /** Terminates the suspects that still qualify. Returns one outcome per suspect. */
  async endSuspects(suspects: SuspectsToEnd): Promise<SettledSuspect[]> {
    return settled<SettledSuspect[]>(await this.native.endSuspects(JSON.stringify(suspects)))
  }

  /** Writes to the event log, if there is one. */
  async logEvents(lines: readonly OrphanLine[]): Promise<void> {
    await this.native.logEvents(JSON.stringify(lines))
  }

  flush(): void {
    this.native.flush()
  }

  /**
   * Closes the registry of a closed supervisor.
   *
   * Resolves when the file is up to date, and when the checkpoint thread has ended, unless another
   * supervisor uses the same path.
   */
  async close(): Promise<void> {
    forgetAtExit(this)
    settled(await this.native.close())
  }
}

/** Returns the key of an entry. A run id is no key: callers choose it, so it can occur twice. */
export function keyOf({ startToken, pid, startedAt }: RunRecord): string {
  return startToken ?? `old:${pid}:${startedAt}`
}

/** Returns one decision per record. Thousands of entries share a few decisions in the JSON. */
function decisionsOf({ decisions, of, records }: PlanJson): PlannedDecision[] {
  for (const { facts } of decisions) Object.freeze(facts)
  return records.map((record, index) => {
    const { action, reason, facts } = decisions[of[index] as number] as Decided
    return { record: frozen(record), action, reason, facts }
  })
}

/** Freezes a record: callers get it, some of them (a reap policy) before the reaper decides. */
function frozen(record: RunRecord): RunRecord {
  const { labels, keeper, members, exit } = record
  if (labels) Object.freeze(labels)
  if (keeper) Object.freeze(keeper)
  if (members) Object.freeze(members)
  if (exit) Object.freeze(exit)
  return Object.freeze(record)
}

const unsaved = new Set<Registry>()

/** Flushes the registry when the bot exits normally. Call it before the first write. */
export function flushAtExit(registry: Registry): void {
  if (unsaved.size === 0) process.on('exit', flushAll)
  unsaved.add(registry)
}

/** Removes a closed registry from those that are flushed at exit. */
function forgetAtExit(registry: Registry): void {
  if (unsaved.delete(registry) && unsaved.size === 0) process.off('exit', flushAll)
}

function flushAll(): void {
  // Send the rules before the flush, because keepers can act on them while the files are written.
  sendAllRules()
  for (const registry of unsaved) {
    try {
      registry.flush()
    } catch {
      // The journal contains all entries, and the next reader of the registry reads it too.
    }
  }
}
