// shutdown: terminates all runs and registered processes of a supervisor at the same time.

import type { RunExit, RunRecord, ShutdownEvent, ShutdownOptions, ShutdownReport } from '../../index.js'
import { stopListening } from '../native/addon.js'
import { pendingAdoptions } from '../orphans/adopt.js'
import { exitOfEnded, exitOfFailed, isKept } from '../registry/record-exit.js'
import { keyOf } from '../registry/registry.js'
import { isThisProcess } from '../run/cancel.js'
import type { Described } from '../run/run-filters.js'
import type { Run } from '../run/run-table.js'
import { SHUTDOWN } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { signalNumber } from '../util/signals.js'
import { clearInterval, epochMs, monotonicMs, setInterval } from '../util/timers.js'
import { duration, flag } from '../util/validation.js'
import type { SupervisorContext } from './supervisor-context.js'

const DEFAULT_GRACE_MS = 5000
/**
 * Registry entries per call. The native side terminates this many at the same time, so no process
 * waits for its first signal.
 */
const BATCH = 64
const REASON = 'shutdown'
const SIGTERM = signalNumber('SIGTERM')
/** The longest delay of a timer. */
const LONG_MS = 2 ** 31 - 1

/** The options of a shutdown, complete. */
export interface ShutdownSettings {
  graceMs: number
  leaveKept: boolean
}

const inProgress = new WeakMap<SupervisorContext, Shutdown>()

/** Starts a shutdown, or joins the one in progress: a shorter grace then applies to it. */
export function shutdown(context: SupervisorContext, settings: ShutdownSettings): Promise<ShutdownReport> {
  const earlier = inProgress.get(context)
  if (earlier) {
    earlier.join(settings)
    return earlier.report
  }
  const started = new Shutdown(context, settings)
  // Before `begin`, because a listener of its event can call shutdown() again.
  inProgress.set(context, started)
  started.begin()
  return started.report
}

export function readShutdownOptions(options: ShutdownOptions | undefined): ShutdownSettings {
  const { graceMs, leaveKept } = readOptions(options, SHUTDOWN, { of: 'shutdown' })
  return {
    graceMs: Math.trunc(duration(graceMs, 'options.graceMs') ?? DEFAULT_GRACE_MS),
    leaveKept: flag(leaveKept, 'options.leaveKept'),
  }
}

/** Whether a shutdown would terminate anything. */
export function hasSomethingToEnd(context: SupervisorContext, leaveKept: boolean): boolean {
  return (
    runsOf(context, leaveKept).length +
      recordsOf(context, leaveKept).length +
      pendingAdoptions(context).size >
    0
  )
}

class Shutdown {
  readonly report: Promise<ShutdownReport>
  #context: SupervisorContext
  #leaveKept: boolean
  #graceMs: number
  #began = monotonicMs()
  #killAt: number
  /**
   * The terminations that were requested: of a run, or of a registry entry by its key.
   *
   * Each is requested once; only a shorter grace is requested again.
   */
  #requested = new Map<Run | string, Promise<void>>()
  #exits: RunExit[] = []
  #settle!: (report: Promise<ShutdownReport>) => void

  constructor(context: SupervisorContext, { graceMs, leaveKept }: ShutdownSettings) {
    this.#context = context
    this.#leaveKept = leaveKept
    this.#graceMs = graceMs
    this.#killAt = this.#began + graceMs
    this.report = new Promise((resolve) => {
      this.#settle = resolve
    })
  }

  begin(): void {
    const [context, graceMs, leaveKept] = [this.#context, this.#graceMs, this.#leaveKept]
    context.closing = true
    try {
      const runs = runsOf(context, leaveKept).length + recordsOf(context, leaveKept).length
      this.#emit({ type: 'shutdown', atMs: epochMs(), phase: 'begin', runs, graceMs, leaveKept })
      this.#requestAll()
    } catch (error) {
      // For example, no file descriptor was left. Nothing was signalled, and a retry can succeed.
      this.#finish()
      this.#settle(Promise.reject(error))
      return
    }
    this.#settle(this.#untilAllEnded())
  }

  /** Merges a second call: it can shorten the grace, and include the kept runs. */
  join({ graceMs, leaveKept }: ShutdownSettings): void {
    const killAt = monotonicMs() + graceMs
    this.#leaveKept &&= leaveKept
    if (killAt < this.#killAt) {
      this.#killAt = killAt
      this.#shortenGrace()
    }
    this.#requestAll()
  }

  /**
   * Resolves when every run and every entry has ended.
   *
   * The loop terminates: the supervisor starts nothing meanwhile, so a later pass finds only
   * adoptions that were in progress before, or runs that a second caller includes. Each is
   * requested once.
   *
   * The interval keeps the event loop alive. Runs that were unref'ed do not, and a bot that waits
   * for this promise must not exit before them.
   */
  async #untilAllEnded(): Promise<ShutdownReport> {
    const awake = setInterval(() => {}, LONG_MS)
    try {
      for (let known = -1; known < this.#requested.size; this.#requestAll()) {
        known = this.#requested.size
        await Promise.all([...this.#requested.values(), ...this.#context.adopting])
      }
    } finally {
      clearInterval(awake)
      this.#finish()
    }
    stopListening()
    const exits = this.#exits
    const survivors = exits.flatMap((exit) => exit.survivors)
    const durationMs = Math.round(monotonicMs() - this.#began)
    const figures = { runs: exits.length, survivors: survivors.length, durationMs }
    this.#emit({ type: 'shutdown', atMs: epochMs(), phase: 'end', ...figures })
    return { exits, survivors, durationMs }
  }

  #finish(): void {
    inProgress.delete(this.#context)
    this.#context.closing = false
  }

  /**
   * Requests, in this tick, the termination of all runs and entries for which that was not done
   * yet.
   */
  #requestAll(): void {
    for (const run of runsOf(this.#context, this.#leaveKept)) this.#request([run], () => this.#endRun(run))
    for (const [key, adoption] of pendingAdoptions(this.#context))
      this.#request([key], async () => this.#endAdopted(await adoption))
    const isNew = (record: RunRecord) => !this.#requested.has(keyOf(record))
    const records = recordsOf(this.#context, this.#leaveKept).filter(isNew)
    for (let first = 0; first < records.length; first += BATCH) {
      const batch = records.slice(first, first + BATCH)
      this.#request(batch.map(keyOf), () => this.#endRecords(batch))
    }
  }

  #request(targets: readonly (Run | string)[], end: () => Promise<RunExit[]>): void {
    if (targets.some((target) => this.#requested.has(target))) return
    const recorded = end().then(
      (exits) => void this.#exits.push(...exits),
      // The adoption failed, so the run belongs to another owner.
      () => {},
    )
    for (const target of targets) this.#requested.set(target, recorded)
  }

  /**
   * Applies the shorter grace to what is still alive. `#untilAllEnded` already waits for the ends.
   */
  #shortenGrace(): void {
    const isRequested = (target: Run | string) => this.#requested.has(target)
    for (const run of runsOf(this.#context, this.#leaveKept)) if (isRequested(run)) void this.#endRun(run)
    const records = recordsOf(this.#context, this.#leaveKept).filter((record) => isRequested(keyOf(record)))
    if (records.length > 0) void this.#endRecords(records)
  }

  #graceLeft(): number {
    return Math.max(0, Math.trunc(this.#killAt - monotonicMs()))
  }

  async #endRun(run: Run): Promise<RunExit[]> {
    try {
      return [await run.cancel({ graceMs: this.#graceLeft(), reason: REASON })]
    } catch (error) {
      return [exitOfFailed(run, REASON, error as Error)]
    }
  }

  async #endAdopted(run: Run): Promise<RunExit[]> {
    // A pass after the adoption may have found the run already.
    if ((this.#leaveKept && run.isKept) || isService(run) || this.#requested.has(run)) return []
    const ended = this.#endRun(run)
    this.#requested.set(
      run,
      ended.then(() => {}),
    )
    return ended
  }

  /** Terminates registered processes. Only the registry knows them. */
  async #endRecords(records: readonly RunRecord[]): Promise<RunExit[]> {
    const keys = records.map(keyOf)
    try {
      const how = { signal: SIGTERM, graceMs: this.#graceLeft(), reason: REASON }
      return (await this.#context.registry.end({ keys, ...how })).map(exitOfEnded)
    } catch (error) {
      return records.map((record) => exitOfFailed(record, REASON, error as Error))
    }
  }

  #emit(event: ShutdownEvent): void {
    if (this.#context.events.hasSubscribers('shutdown')) this.#context.events.emit(event)
  }
}

/**
 * Returns the live runs that this supervisor started or adopted, and those that wait for their
 * start.
 */
function runsOf(context: SupervisorContext, leaveKept: boolean): Run[] {
  return context.runs.findLive((run) => !isService(run)).filter((run) => !(leaveKept && run.isKept))
}

/**
 * Whether a run is a service. A shutdown leaves services: only `stopService` or `cancel` ends them.
 */
const isService = ({ service }: Described) => service !== undefined

/**
 * Returns the entries without a live run: registered processes, and adoptions that failed half-way.
 */
function recordsOf(context: SupervisorContext, leaveKept: boolean): RunRecord[] {
  const pending = pendingAdoptions(context)
  return ownRecords(context).filter((record) => {
    const { live } = context.runs.named(record.runId)
    const isLeft = isService(record) || isThisProcess(record) || (leaveKept && isKept(record))
    return live?.pid !== record.pid && !pending.has(keyOf(record)) && !isLeft
  })
}

/**
 * Returns the entries of this supervisor, from memory. Other supervisors of the bot have their own.
 */
function ownRecords(context: SupervisorContext): RunRecord[] {
  const records = context.registry.own(undefined, undefined)
  return records.filter(
    ({ ownerInstanceId, state }) => ownerInstanceId === context.instanceId && state !== 'exited',
  )
}
