// shutdown: whatever a supervisor answers for is ended, all at once and within bounds.

import type { RunExit, RunRecord, ShutdownEvent, ShutdownOptions, ShutdownReport } from '../index.js'
import { pendingAdoptions } from './adopt.js'
import { checkOptions, duration, flag } from './checks.js'
import type { Described } from './filters.js'
import type { Owner } from './owner.js'
import { exitOfEnded, exitOfFailed, isKept } from './records.js'
import { keyOf } from './registry.js'
import type { Run } from './runs.js'
import { signalNumber } from './signals.js'

const DEFAULT_GRACE_MS = 5000
/** The native side ends so many from outside at the same time; nobody shall wait for his first signal. */
const AT_ONCE = 64
const REASON = 'shutdown'
const SIGTERM = signalNumber('SIGTERM')
/** As long as a timer can be. */
const LONG_MS = 2 ** 31 - 1

/** How everything is to be ended, and what is not. */
export interface Wish {
  graceMs: number
  leaveKept: boolean
}

const underWay = new WeakMap<Owner, Shutdown>()

/** Those who ask while one is under way get its result, and may hurry it. */
export function shutdown(owner: Owner, wish: Wish): Promise<ShutdownReport> {
  const running = underWay.get(owner)
  if (running) {
    running.join(wish)
    return running.report
  }
  const begun = new Shutdown(owner, wish)
  // Before it begins: whoever hears of that may ask for one as well.
  underWay.set(owner, begun)
  begun.begin()
  return begun.report
}

export function readShutdownOptions(options: ShutdownOptions | undefined): Wish {
  checkOptions(options)
  return {
    graceMs: Math.trunc(duration(options?.graceMs, 'options.graceMs') ?? DEFAULT_GRACE_MS),
    leaveKept: flag(options?.leaveKept, 'options.leaveKept'),
  }
}

/** Whether there is anything that a shutdown would end. */
export function hasSomethingToEnd(owner: Owner, leaveKept: boolean): boolean {
  return (
    runsOf(owner, leaveKept).length + recordsOf(owner, leaveKept).length + pendingAdoptions(owner).size > 0
  )
}

class Shutdown {
  readonly report: Promise<ShutdownReport>
  #owner: Owner
  #leaveKept: boolean
  #graceMs: number
  #began = performance.now()
  #killAt: number
  /** What was asked to end: a run, or an entry by its key. Each once, but for being hurried. */
  #asked = new Map<Run | string, Promise<void>>()
  #exits: RunExit[] = []
  #settle!: (report: Promise<ShutdownReport>) => void

  constructor(owner: Owner, { graceMs, leaveKept }: Wish) {
    this.#owner = owner
    this.#leaveKept = leaveKept
    this.#graceMs = graceMs
    this.#killAt = this.#began + graceMs
    this.report = new Promise((resolve) => {
      this.#settle = resolve
    })
  }

  begin(): void {
    const [owner, graceMs, leaveKept] = [this.#owner, this.#graceMs, this.#leaveKept]
    owner.closing = true
    try {
      const runs = runsOf(owner, leaveKept).length + recordsOf(owner, leaveKept).length
      this.#tell({ type: 'shutdown', atMs: Date.now(), phase: 'begin', runs, graceMs, leaveKept })
      this.#askAll()
    } catch (error) {
      // Out of descriptors, say: nobody was asked, and the next one may succeed.
      this.#over()
      this.#settle(Promise.reject(error))
      return
    }
    this.#settle(this.#untilAllIsOver())
  }

  /** Somebody wants it too: sooner, perhaps, or with those that were to be left. */
  join({ graceMs, leaveKept }: Wish): void {
    const killAt = performance.now() + graceMs
    this.#leaveKept &&= leaveKept
    if (killAt < this.#killAt) {
      this.#killAt = killAt
      this.#hurry()
    }
    this.#askAll()
  }

  /**
   * Comes to an end: nothing new can be started while it lasts, so another look finds only what was being taken over at the
   * first, or what a second caller wants as well; and nobody is asked twice.
   *
   * The interval keeps the event loop alive. Runs that were unref'ed do not, and a bot that waits for this must not end before
   * them.
   */
  async #untilAllIsOver(): Promise<ShutdownReport> {
    const awake = setInterval(() => {}, LONG_MS)
    try {
      for (let known = -1; known < this.#asked.size; this.#askAll()) {
        known = this.#asked.size
        await Promise.all([...this.#asked.values(), ...this.#owner.adopting])
      }
    } finally {
      clearInterval(awake)
      this.#over()
    }
    const exits = this.#exits
    const survivors = exits.flatMap((exit) => exit.survivors)
    const durationMs = Math.round(performance.now() - this.#began)
    const figures = { runs: exits.length, survivors: survivors.length, durationMs }
    this.#tell({ type: 'shutdown', atMs: Date.now(), phase: 'end', ...figures })
    return { exits, survivors, durationMs }
  }

  #over(): void {
    underWay.delete(this.#owner)
    this.#owner.closing = false
  }

  /** Everybody who was not asked yet, in this very tick. */
  #askAll(): void {
    for (const run of runsOf(this.#owner, this.#leaveKept)) this.#ask([run], () => this.#endRun(run))
    for (const [key, adoption] of pendingAdoptions(this.#owner))
      this.#ask([key], async () => this.#endAdopted(await adoption))
    const isNew = (record: RunRecord) => !this.#asked.has(keyOf(record))
    const records = recordsOf(this.#owner, this.#leaveKept).filter(isNew)
    for (let first = 0; first < records.length; first += AT_ONCE) {
      const some = records.slice(first, first + AT_ONCE)
      this.#ask(some.map(keyOf), () => this.#endRecords(some))
    }
  }

  #ask(those: readonly (Run | string)[], end: () => Promise<RunExit[]>): void {
    if (those.some((it) => this.#asked.has(it))) return
    const noted = end().then(
      (exits) => void this.#exits.push(...exits),
      // It could not be taken over, so it is not ours to end.
      () => {},
    )
    for (const it of those) this.#asked.set(it, noted)
  }

  /** Whoever was asked and is still there gets the shorter grace. Their ends are awaited already. */
  #hurry(): void {
    for (const run of runsOf(this.#owner, this.#leaveKept)) if (this.#asked.has(run)) void this.#endRun(run)
    const records = recordsOf(this.#owner, this.#leaveKept).filter((record) => this.#asked.has(keyOf(record)))
    if (records.length > 0) void this.#endRecords(records)
  }

  #graceLeft(): number {
    return Math.max(0, Math.trunc(this.#killAt - performance.now()))
  }

  async #endRun(run: Run): Promise<RunExit[]> {
    try {
      return [await run.cancel({ graceMs: this.#graceLeft(), reason: REASON })]
    } catch (error) {
      return [exitOfFailed(run, REASON, error as Error)]
    }
  }

  async #endAdopted(run: Run): Promise<RunExit[]> {
    // Another look may have found it first.
    if ((this.#leaveKept && run.isKept) || isService(run) || this.#asked.has(run)) return []
    const ended = this.#endRun(run)
    this.#asked.set(
      run,
      ended.then(() => {}),
    )
    return ended
  }

  /** Processes that were registered: nobody but the registry knows of them. */
  async #endRecords(records: readonly RunRecord[]): Promise<RunExit[]> {
    const keys = records.map(keyOf)
    try {
      const how = { signal: SIGTERM, graceMs: this.#graceLeft(), reason: REASON }
      return (await this.#owner.registry.end({ keys, ...how })).map(exitOfEnded)
    } catch (error) {
      return records.map((record) => exitOfFailed(record, REASON, error as Error))
    }
  }

  #tell(event: ShutdownEvent): void {
    if (this.#owner.events.isHeard('shutdown')) this.#owner.events.announce(event)
  }
}

/** Started here, or taken over; also those that wait to be started. */
function runsOf(owner: Owner, leaveKept: boolean): Run[] {
  return owner.runs.findLive((run) => !isService(run)).filter((run) => !(leaveKept && run.isKept))
}

/** Those are nobody's to take along: they are ended by name, or by a cancel. */
const isService = ({ service }: Described) => service !== undefined

/** Entries without such a run: registered processes, and what could not be taken over altogether. */
function recordsOf(owner: Owner, leaveKept: boolean): RunRecord[] {
  const pending = pendingAdoptions(owner)
  return ownRecords(owner).filter((record) => {
    const { live } = owner.runs.named(record.runId)
    const isLeft = isService(record) || (leaveKept && isKept(record))
    return live?.pid !== record.pid && !pending.has(keyOf(record)) && !isLeft
  })
}

/** From memory. Other supervisors in this process have theirs. */
function ownRecords(owner: Owner): RunRecord[] {
  const records = owner.registry.own(undefined, undefined)
  return records.filter(
    ({ ownerInstanceId, state }) => ownerInstanceId === owner.instanceId && state !== 'exited',
  )
}
