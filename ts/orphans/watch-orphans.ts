// watchOrphans: searches for orphans when an owner dies, and at an interval.

import { type FSWatcher, mkdirSync, watch } from 'node:fs'
import { basename, dirname } from 'node:path'
import type {
  OrphanFindings,
  OrphanWatch,
  OrphanWatchStats,
  ReapDecision,
  RunRecord,
  Suspect,
} from '../../index.js'
import { type NativeOwnerWatch, watchOwners } from '../native/addon.js'
import { keyOf } from '../registry/registry.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { outOfRange } from '../util/errors.js'
import { WATCH } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { clearInterval, clearTimeout, epochMs, setInterval, setTimeout } from '../util/timers.js'
import { duration, flag } from '../util/validation.js'
import { isOlder, search } from './find-and-end.js'
import { aboutSuspect, detectionOf, logAndEmit } from './orphan-events.js'
import { reap } from './reap.js'
import { readSuspicion, type Suspicion } from './suspects.js'

const DEFAULT_INTERVAL_MS = 60_000
const MIN_INTERVAL_MS = 100
const MAX_INTERVAL_MS = 2 ** 31 - 1

/** The delay after a change of the registry before it is read for new owners. Limits how often. */
const NEW_OWNERS_DELAY_MS = 500

/**
 * The time after the grace in which the keeper of a dead bot must end the run. Later it is an
 * orphan.
 */
const KEEPER_LIMIT_MS = 10_000

interface Settings {
  intervalMs: number
  maxAgeMs: number
  autoKill: boolean
  graceMs: number | undefined
  suspicion: Suspicion
}

export function watchOrphans(context: SupervisorContext, options: unknown): OrphanWatch {
  return new Watch(context, readSettings(options))
}

function readSettings(options: unknown): Settings {
  const given = readOptions(options, WATCH, { of: 'watchOrphans' })
  const either = (long: 'intervalMs' | 'maxAgeMs', short: 'interval' | 'maxAge') =>
    duration(given[long], `options.${long}`) ?? duration(given[short], `options.${short}`)
  const intervalMs = either('intervalMs', 'interval') ?? DEFAULT_INTERVAL_MS
  if (intervalMs < MIN_INTERVAL_MS || intervalMs > MAX_INTERVAL_MS)
    throw outOfRange('options.intervalMs', `>= ${MIN_INTERVAL_MS} && <= ${MAX_INTERVAL_MS}`, intervalMs)
  return {
    intervalMs,
    maxAgeMs: either('maxAgeMs', 'maxAge') ?? 0,
    autoKill: flag(given.autoKill, 'options.autoKill'),
    graceMs: duration(given.graceMs, 'options.graceMs'),
    suspicion: readSuspicion(given),
  }
}

class Watch implements OrphanWatch {
  static readonly name = 'OrphanWatch'

  readonly #context: SupervisorContext
  readonly #settings: Settings
  readonly #timer: NodeJS.Timeout
  readonly #deaths: NativeOwnerWatch
  /**
   * Reports changes of the registry: it can have a new owner. Undefined if the system cannot watch.
   */
  #folder: FSWatcher | undefined
  #newOwners: NodeJS.Timeout | undefined
  /** The next check, for runs that their keepers are terminating. */
  #again: NodeJS.Timeout | undefined
  /** Never rejects. */
  #current: Promise<unknown> = Promise.resolve()
  #next: Promise<OrphanFindings> | undefined
  /** When each live orphan was first seen, by its identity. */
  #since = new Map<string, number>()
  /** The orphans for which an event was emitted. */
  #reported = new Set<string>()
  #stats: OrphanWatchStats = { watching: true, lastCheck: null, orphansDetected: 0, orphansKilled: 0 }

  constructor(context: SupervisorContext, settings: Settings) {
    this.#context = context
    this.#settings = settings
    this.#deaths = watchOwners(context.registry.native, () => this.#checkInBackground())
    context.cleanups.add(this.stop)
    this.#timer = setInterval(() => this.#checkInBackground(), settings.intervalMs).unref()
    this.#checkInBackground()
  }

  get stats(): OrphanWatchStats {
    return { ...this.#stats }
  }

  readonly check = (): Promise<OrphanFindings> => {
    this.#next ??= this.#afterCurrent()
    return this.#next
  }

  readonly stop = (): void => {
    this.#stats.watching = false
    this.#context.cleanups.delete(this.stop)
    clearInterval(this.#timer)
    clearTimeout(this.#newOwners)
    clearTimeout(this.#again)
    this.#deaths.stop()
    this.#folder?.close()
    this.#folder = undefined
  };

  [Symbol.dispose](): void {
    this.stop()
  }

  /**
   * Starts a search after the current one.
   *
   * One search at a time. The current search can miss what happens during it, so a caller that
   * comes then gets the next one.
   */
  async #afterCurrent(): Promise<OrphanFindings> {
    await this.#current
    this.#next = undefined
    const searching = this.#search()
    this.#current = searching.catch(() => {})
    return searching
  }

  /** Checks without a caller: an error becomes a warning about the registry. */
  #checkInBackground(): void {
    if (!this.#stats.watching) return
    this.check().catch(({ message }: Error) => {
      // A search that a close interrupts is no error.
      if (this.#context.closed) return
      this.#context.report({ kind: 'watch', message: `The search for orphans failed: ${message}` })
    })
  }

  async #search(): Promise<OrphanFindings> {
    // Before the search, so that the death of an owner during the search starts another.
    this.#followOwners()
    const findings = await search(this.#context, this.#settings.suspicion)
    this.#stats.lastCheck = epochMs()
    if (this.#stats.watching) await this.#handle(findings, this.#stats.lastCheck)
    return findings
  }

  async #handle({ confirmed, suspected }: OrphanFindings, now: number): Promise<void> {
    const { autoKill, maxAgeMs } = this.#settings
    this.#remember([...confirmed, ...suspected].map(identityOf), now)
    this.#scheduleCheck(confirmed.map((decision) => this.#timeLeft(decision, now)))
    const due = confirmed.filter((decision) => this.#timeLeft(decision, now) <= 0)
    const toEnd = due.filter(({ record }) => autoKill && isOlder(record, maxAgeMs))
    const ending = new Set(toEnd.map(identityOf))
    const newOrphans = due.filter((it) => this.#markReported(it))
    const newSuspects = suspected.filter((it) => this.#markReported(it))
    // `reap` emits the events of the orphans that are terminated now.
    await logAndEmit(this.#context, [
      ...newOrphans.filter((it) => !ending.has(identityOf(it))).map(detectionOf),
      ...newSuspects.map((it) => aboutSuspect('orphan:detected', it, it.reason, true)),
    ])
    // A listener of these events can stop the watch.
    if (ending.size > 0 && this.#stats.watching) await this.#end(ending)
  }

  /** Marks an orphan as reported. Returns false if it was before. */
  #markReported(orphan: ReapDecision | Suspect): boolean {
    const identity = identityOf(orphan)
    if (this.#reported.has(identity)) return false
    this.#reported.add(identity)
    this.#stats.orphansDetected++
    return true
  }

  /** Terminates exactly these runs, not those that became orphans since the search. */
  async #end(keys: ReadonlySet<string>): Promise<void> {
    const { killed } = await reap(this.#context, process.pid, {
      graceMs: this.#settings.graceMs,
      policy: (record: RunRecord) => (keys.has(keyOf(record)) ? 'terminate' : 'leave'),
    })
    this.#stats.orphansKilled += killed.length
  }

  /**
   * Returns how long the keeper of a run may still take.
   *
   * The keeper notices the death of the bot too, and terminates the run. A keeper that takes longer
   * was stopped or killed.
   */
  #timeLeft({ record, facts }: ReapDecision, now: number): number {
    if (facts.keeper !== 'alive' || record.onOwnerExit !== 'kill') return 0
    const since = this.#since.get(keyOf(record)) ?? now
    return since + record.graceMs + KEEPER_LIMIT_MS - now
  }

  /** Schedules a check for the moment at which the first keeper has no time left. */
  #scheduleCheck(left: readonly number[]): void {
    clearTimeout(this.#again)
    const first = Math.min(...left.filter((ms) => ms > 0))
    // The interval comes first. A grace can also be longer than the longest timer.
    if (first >= this.#settings.intervalMs) return
    this.#again = setTimeout(() => this.#checkInBackground(), first).unref()
  }

  /** Updates when each orphan was first seen, and forgets those that are gone. */
  #remember(keys: readonly string[], now: number): void {
    this.#since = new Map(keys.map((key) => [key, this.#since.get(key) ?? now]))
    this.#reported = new Set([...this.#reported].filter((key) => this.#since.has(key)))
  }

  #followOwners(): void {
    if (!this.#stats.watching) return
    this.#deaths.refresh()
    this.#watchForNewOwners()
  }

  /** Watches the folder of the registry. Without that, new owners are found at each interval. */
  #watchForNewOwners(): void {
    if (this.#folder) return
    const { registryPath } = this.#context
    const onChange = (_event: string, name: string | null) => {
      if (name?.startsWith(basename(registryPath)) && !this.#newOwners) this.#followNewOwnersSoon()
    }
    const forget = () => {
      this.#folder?.close()
      this.#folder = undefined
    }
    const folder = dirname(registryPath)
    try {
      // The first bot that uses the registry is a new owner too, and it would create the folder.
      mkdirSync(folder, { recursive: true })
      this.#folder = watch(folder, { persistent: false }, onChange).on('error', forget)
    } catch {
      // The folder cannot be created, or the system has no watches left.
    }
  }

  #followNewOwnersSoon(): void {
    const follow = () => {
      this.#newOwners = undefined
      if (this.#stats.watching) this.#deaths.refresh()
    }
    this.#newOwners = setTimeout(follow, NEW_OWNERS_DELAY_MS).unref()
  }
}

const identityOf = (orphan: ReapDecision | Suspect) =>
  'record' in orphan ? keyOf(orphan.record) : orphan.startToken
