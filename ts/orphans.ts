// Orphans of both kinds: those that the registry proves, and those that only look like some.

import type {
  EndOrphansOptions,
  FindOrphansOptions,
  OrphanFindings,
  OrphanReport,
  RunRecord,
} from '../index.js'
import { checkOptions, duration, flag } from './checks.js'
import type { Owner } from './owner.js'
import { foresee, reap } from './reap.js'
import { findSuspects, readSuspicion, type Suspicion, settleSuspects } from './suspects.js'

export async function findOrphans(owner: Owner, options: unknown): Promise<OrphanFindings> {
  checkOptions(options)
  const given = (options ?? {}) as FindOrphansOptions
  const suspicion = readSuspicion(given)
  const wantsSuspects = given.suspects === undefined || flag(given.suspects, 'options.suspects')
  return look(owner, wantsSuspects ? suspicion : undefined)
}

/** Without a suspicion nobody is suspected. */
export async function look(owner: Owner, suspicion: Suspicion | undefined): Promise<OrphanFindings> {
  const [decisions, suspected] = await Promise.all([
    foresee(owner),
    suspicion ? findSuspects(owner, suspicion) : [],
  ])
  return { confirmed: decisions.filter(({ decision }) => decision === 'end'), suspected }
}

/** Suspects are looked for first: if that is not possible, nobody was touched. */
export async function endOrphans(owner: Owner, options: unknown): Promise<OrphanReport> {
  checkOptions(options)
  const given = (options ?? {}) as EndOrphansOptions
  const suspicion = readSuspicion(given)
  const dryRun = flag(given.dryRun, 'options.dryRun')
  const force = flag(given.force, 'options.force')
  const olderThanMs = duration(given.olderThanMs, 'options.olderThanMs') ?? 0
  const graceMs = duration(given.graceMs, 'options.graceMs')
  const suspects = await findSuspects(owner, suspicion)
  const policy =
    olderThanMs > 0
      ? (record: RunRecord) => (isOlder(record, olderThanMs) ? 'terminate' : 'leave')
      : undefined
  const report = await reap(owner, process.pid, { dryRun, graceMs, policy })
  const suspected = await settleSuspects(owner, suspects, suspicion, {
    dryRun,
    force,
    olderThanMs,
    graceMs: Math.trunc(graceMs ?? owner.graceMs),
  })
  return { ...report, suspected }
}

/** One of which nobody knows when it was started is not old enough for anything. */
export function isOlder({ startedAt }: RunRecord, ageMs: number): boolean {
  return ageMs === 0 || (startedAt > 0 && Date.now() - startedAt >= ageMs)
}
