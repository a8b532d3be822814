// findOrphans and endOrphans: for confirmed orphans (from the registry) and suspects.

import type { OrphanFindings, OrphanReport, RunRecord } from '../../index.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { END_ORPHANS, FIND_ORPHANS } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { epochMs } from '../util/timers.js'
import { duration, flag } from '../util/validation.js'
import { preview, reap } from './reap.js'
import { findSuspects, readSuspicion, type Suspicion, settleSuspects } from './suspects.js'

export async function findOrphans(context: SupervisorContext, options: unknown): Promise<OrphanFindings> {
  const given = readOptions(options, FIND_ORPHANS, { of: 'findOrphans' })
  const suspicion = readSuspicion(given)
  const wantsSuspects = given.suspects === undefined || flag(given.suspects, 'options.suspects')
  return search(context, wantsSuspects ? suspicion : undefined)
}

/** Finds orphans. Without `suspicion` it finds no suspects. */
export async function search(
  context: SupervisorContext,
  suspicion: Suspicion | undefined,
): Promise<OrphanFindings> {
  const [{ decisions, ...problem }, suspected] = await Promise.all([
    preview(context),
    suspicion ? findSuspects(context, suspicion) : [],
  ])
  return { confirmed: decisions.filter(({ decision }) => decision === 'end'), suspected, ...problem }
}

/** Finds suspects first: if that fails, no process was touched. */
export async function endOrphans(context: SupervisorContext, options: unknown): Promise<OrphanReport> {
  const given = readOptions(options, END_ORPHANS, { of: 'endOrphans' })
  const suspicion = readSuspicion(given)
  const dryRun = flag(given.dryRun, 'options.dryRun')
  const force = flag(given.force, 'options.force')
  const olderThanMs = duration(given.olderThanMs, 'options.olderThanMs') ?? 0
  const graceMs = duration(given.graceMs, 'options.graceMs')
  const suspects = await findSuspects(context, suspicion, force)
  const policy =
    olderThanMs > 0
      ? (record: RunRecord) => (isOlder(record, olderThanMs) ? 'terminate' : 'leave')
      : undefined
  const report = await reap(context, process.pid, { dryRun, graceMs, policy })
  const suspected = await settleSuspects(context, suspects, suspicion, {
    dryRun,
    force,
    olderThanMs,
    graceMs: Math.trunc(graceMs ?? context.graceMs),
  })
  return { ...report, suspected }
}

/**
 * Whether a run is at least `ageMs` old. False if its start time is unknown, unless `ageMs` is 0.
 */
export function isOlder({ startedAt }: RunRecord, ageMs: number): boolean {
  return ageMs === 0 || (startedAt > 0 && epochMs() - startedAt >= ageMs)
}
