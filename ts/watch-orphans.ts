// watchOrphans: looks for orphans when an owner has died, and from time to time.

import { type FSWatcher, mkdirSync, watch } from 'node:fs'
import { basename, dirname } from 'node:path'
import type {
  OrphanFindings,
  OrphanWatch,
  OrphanWatchStats,
  ReapDecision,
  RunRecord,
  Suspect,
  WatchOptions,
} from '../index.js'
import { checkOptions, duration, flag } from './checks.js'
import { outOfRange } from './errors.js'
import { type NativeOwnerWatch, watchOwners } from './native.js'
import { aboutSuspect, seen, tellAndNote } from './orphan-events.js'
import { isOlder, look } from './orphans.js'
import type { Owner } from './owner.js'
import { reap } from './reap.js'
import { keyOf } from './registry.js'
import { readSuspicion, type Suspicion } from './suspects.js'

const DEFAULT_INTERVAL_MS = 60_000
const MIN_INTERVAL_MS = 100
const MAX_INTERVAL_MS = 2 ** 31 - 1

/** A registry that changes is read for new owners this much later, and so not more often. */
const NEWCOMERS_MS = 500

/** How long after its grace a keeper may take to end the run of a bot that has died, before that run is an orphan. */
const KEEPER_LIMIT_MS = 10_000

interface Settings {
  intervalMs: number
  maxAgeMs: number
  autoKill: boolean
  graceMs: number | undefined
  suspicion: Suspicion
}

export function watchOrphans(owner: Owner, options: unknown): OrphanWatch {
  return new Watch(owner, readSettings(options))
}

function readSettings(options: unknown): Settings {
  checkOptions(options)
  const given = (options ?? {}) as WatchOptions
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

  readonly #owner: Owner
  readonly #settings: Settings
  readonly #timer: NodeJS.Timeout
  readonly #deaths: NativeOwnerWatch
  /** Tells that the registry changes: there may be a new owner. Undefined if nobody does. */
  #folder: FSWatcher | undefined
  #newcomers: NodeJS.Timeout | undefined
  /** For runs that are being ended by their keepers. */
  #again: NodeJS.Timeout | undefined
  /** Never rejects. */
  #current: Promise<unknown> = Promise.resolve()
  #next: Promise<OrphanFindings> | undefined
  /** When each orphan that is still there was first seen, by its identity. */
  #since = new Map<string, number>()
  /** Those of them that were told. */
  #told = new Set<string>()
  #stats: OrphanWatchStats = { watching: true, lastCheck: null, orphansDetected: 0, orphansKilled: 0 }

  constructor(owner: Owner, settings: Settings) {
    this.#owner = owner
    this.#settings = settings
    this.#deaths = watchOwners(owner.registry.native, () => this.#checkUnasked())
    this.#timer = setInterval(() => this.#checkUnasked(), settings.intervalMs).unref()
    this.#checkUnasked()
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
    clearInterval(this.#timer)
    clearTimeout(this.#newcomers)
    clearTimeout(this.#again)
    this.#deaths.stop()
    this.#folder?.close()
    this.#folder = undefined
  };

  [Symbol.dispose](): void {
    this.stop()
  }

  /** One look at a time. What happens during one may be missed by it, so who asks then gets another. */
  async #afterCurrent(): Promise<OrphanFindings> {
    await this.#current
    this.#next = undefined
    const looking = this.#look()
    this.#current = looking.catch(() => {})
    return looking
  }

  /** Nobody waits for it: what goes wrong is told like other trouble with the registry. */
  #checkUnasked(): void {
    if (!this.#stats.watching) return
    this.check().catch(({ message }: Error) =>
      this.#owner.report({ kind: 'watch', message: `Orphans could not be looked for: ${message}` }),
    )
  }

  async #look(): Promise<OrphanFindings> {
    // First, so that an owner that dies during the look calls for another.
    this.#followOwners()
    const findings = await look(this.#owner, this.#settings.suspicion)
    this.#stats.lastCheck = Date.now()
    if (this.#stats.watching) await this.#dealWith(findings, this.#stats.lastCheck)
    return findings
  }

  async #dealWith({ confirmed, suspected }: OrphanFindings, now: number): Promise<void> {
    const { autoKill, maxAgeMs } = this.#settings
    this.#remember([...confirmed, ...suspected].map(identityOf), now)
    this.#lookAgain(confirmed.map((decision) => this.#timeLeft(decision, now)))
    const due = confirmed.filter((decision) => this.#timeLeft(decision, now) <= 0)
    const toEnd = due.filter(({ record }) => autoKill && isOlder(record, maxAgeMs))
    const ending = new Set(toEnd.map(identityOf))
    const news = due.filter((it) => this.#isNews(it))
    const newSuspects = suspected.filter((it) => this.#isNews(it))
    // Of those that are ended now, whoever ends them tells.
    await tellAndNote(this.#owner, [
      ...news.filter((it) => !ending.has(identityOf(it))).map(seen),
      ...newSuspects.map((it) => aboutSuspect('orphan:detected', it, it.reason, true)),
    ])
    // Somebody may have heard that, and stopped us.
    if (ending.size > 0 && this.#stats.watching) await this.#end(ending)
  }

  /** Whether it is to be told. It is, once. */
  #isNews(orphan: ReapDecision | Suspect): boolean {
    const identity = identityOf(orphan)
    if (this.#told.has(identity)) return false
    this.#told.add(identity)
    this.#stats.orphansDetected++
    return true
  }

  /** Those, and nobody who has become an orphan since. */
  async #end(keys: ReadonlySet<string>): Promise<void> {
    const { killed } = await reap(this.#owner, process.pid, {
      graceMs: this.#settings.graceMs,
      policy: (record: RunRecord) => (keys.has(keyOf(record)) ? 'terminate' : 'leave'),
    })
    this.#stats.orphansKilled += killed.length
  }

  /** Its keeper has seen its bot die, too, and does what it is there for. One that takes too long was stopped, or has been killed. */
  #timeLeft({ record, facts }: ReapDecision, now: number): number {
    if (facts.keeper !== 'alive' || record.onOwnerExit !== 'kill') return 0
    const since = this.#since.get(keyOf(record)) ?? now
    return since + record.graceMs + KEEPER_LIMIT_MS - now
  }

  /** When the first of those that have time left has none. */
  #lookAgain(left: readonly number[]): void {
    clearTimeout(this.#again)
    const first = Math.min(...left.filter((ms) => ms > 0))
    // A grace may be longer than a timer can be, or than the interval.
    if (first >= this.#settings.intervalMs) return
    this.#again = setTimeout(() => this.#checkUnasked(), first).unref()
  }

  /** Who is there, and since when. Who is gone is forgotten. */
  #remember(keys: readonly string[], now: number): void {
    this.#since = new Map(keys.map((key) => [key, this.#since.get(key) ?? now]))
    this.#told = new Set([...this.#told].filter((key) => this.#since.has(key)))
  }

  #followOwners(): void {
    if (!this.#stats.watching) return
    this.#deaths.follow()
    this.#listenForNewcomers()
  }

  /** Where that is not possible, new owners are found every interval. */
  #listenForNewcomers(): void {
    if (this.#folder) return
    const { registryPath } = this.#owner
    const onChange = (_event: string, name: string | null) => {
      if (name?.startsWith(basename(registryPath)) && !this.#newcomers) this.#expectNewcomers()
    }
    const forget = () => {
      this.#folder?.close()
      this.#folder = undefined
    }
    const folder = dirname(registryPath)
    try {
      // The first bot is a newcomer, too, and it would make the folder.
      mkdirSync(folder, { recursive: true })
      this.#folder = watch(folder, { persistent: false }, onChange).on('error', forget)
    } catch {
      // There can be no such folder, or the system watches no more of them.
    }
  }

  #expectNewcomers(): void {
    const follow = () => {
      this.#newcomers = undefined
      if (this.#stats.watching) this.#deaths.follow()
    }
    this.#newcomers = setTimeout(follow, NEWCOMERS_MS).unref()
  }
}

const identityOf = (orphan: ReapDecision | Suspect) =>
  'record' in orphan ? keyOf(orphan.record) : orphan.startToken
