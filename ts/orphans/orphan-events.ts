// The events orphan:detected, orphan:killed, orphan:skipped and orphan:failed.
//
// The event log contains the same facts in the same words. The native side writes the lines about
// reaped entries (src/reap/event_log.rs), this file writes the others.

import type { OrphanEvent, OrphanEventName, ReapDecision, RunRecord, Suspect } from '../../index.js'
import type { OrphanLine } from '../registry/registry.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { epochMs } from '../util/timers.js'

/** The decision about an entry, after the policy. */
interface Wanted {
  readonly record: RunRecord
  readonly action: ReapDecision['decision']
  readonly reason: string
  readonly facts: ReapDecision['facts']
}

const names: readonly OrphanEventName[] = [
  'orphan:detected',
  'orphan:killed',
  'orphan:skipped',
  'orphan:failed',
]
/** The reasons for which an entry is no orphan: it has an owner, or needs none. */
const owned = new Set(['own-run', 'owner-alive', 'lease-expired-owner-alive', 'owner-unknown', 'service'])
const DIED = 'it had already ended by itself'

/** Whether an orphan event has a listener. To build many events takes time. */
export function hasListeners(context: SupervisorContext): boolean {
  return names.some((name) => context.events.hasListener(name))
}

/** Emits `orphan:detected`. Call it before the first signal. */
export function emitDetected(context: SupervisorContext, wanted: readonly Wanted[], dryRun: boolean): void {
  emitAll(context, 'orphan:detected', wanted, dryRun)
}

/** Emits `orphan:failed`. No process was signalled. */
export function emitFailed(context: SupervisorContext, wanted: readonly Wanted[], error: Error): void {
  emitAll(context, 'orphan:failed', wanted, false, error.message)
}

/** Emits the outcomes. */
export function emitSettled(context: SupervisorContext, decisions: readonly ReapDecision[]): void {
  if (!hasListeners(context)) return
  for (const decision of decisions) {
    const outcome = decision.dryRun ? undefined : outcomeOf(decision)
    if (outcome)
      context.events.emitOrphan(outcome.name, eventOf({ ...decision, action: decision.decision, ...outcome }))
  }
}

/** An event about an orphan that is not being reaped. */
export interface NamedEvent {
  readonly name: OrphanEventName
  readonly event: OrphanEvent
}

/** Returns the event of a confirmed orphan that is only detected. */
export const detectionOf = (decision: ReapDecision): NamedEvent => ({
  name: 'orphan:detected',
  event: eventOf({ ...decision, action: decision.decision, dryRun: true }),
})

/** Returns an event about a suspect. */
export function aboutSuspect(
  name: OrphanEventName,
  { pid, command, ageMs }: Suspect,
  reason: string,
  dryRun: boolean,
): NamedEvent {
  const suspect = { pid, runId: null, command, ageMs, status: 'suspected' } as const
  return { name, event: { atMs: epochMs(), ...suspect, reason, dryRun } }
}

/**
 * Writes lines to the event log, and emits the events.
 *
 * The lines before the events, so that a listener finds its line in the log. An error of the log is
 * ignored.
 */
export async function logAndEmit(context: SupervisorContext, events: readonly NamedEvent[]): Promise<void> {
  if (events.length === 0) return
  await context.writing().logEvents(events.map(lineOf))
  emitOnly(context, events)
}

/** Emits the events without lines in the event log: a dry run writes nothing. */
export function emitOnly(context: SupervisorContext, events: readonly NamedEvent[]): void {
  for (const { name, event } of events) context.events.emitOrphan(name, event)
}

function lineOf({ name, event }: NamedEvent): OrphanLine {
  const { pid, command, ageMs, status, reason } = event
  return { what: name.slice('orphan:'.length), pid, command, ageMs, status, reason }
}

function emitAll(
  context: SupervisorContext,
  name: OrphanEventName,
  wanted: readonly Wanted[],
  dryRun: boolean,
  reason?: string,
): void {
  if (!context.events.hasListener(name)) return
  for (const one of wanted.filter(isDetected))
    context.events.emitOrphan(name, eventOf({ ...one, dryRun, reason: reason ?? one.reason }))
}

const isOrphan = ({ facts }: Pick<Wanted, 'facts'>) => !owned.has(String(facts.reason))

/** Whether an entry is an orphan of which a process can be alive. */
const isDetected = (it: Pick<Wanted, 'facts' | 'action'>) =>
  isOrphan(it) && it.action !== 'drop' && it.action !== 'drop-reused'

/** Returns the event of an outcome, or undefined if the entry is no orphan. */
function outcomeOf(
  it: ReapDecision,
): { name: OrphanEventName; reason: string; status?: OrphanEvent['status'] } | undefined {
  const { reason, error = reason } = it
  if (!isOrphan(it)) return undefined
  switch (it.outcome) {
    case 'ended':
      return { name: 'orphan:killed', reason, status: 'confirmed' }
    case 'failed':
      return { name: 'orphan:failed', reason: error }
    case 'adopted':
      return { name: 'orphan:skipped', reason: `adopted by policy (${reason})` }
    case 'already-dead':
      return { name: 'orphan:skipped', reason: it.decision === 'drop' ? reason : DIED, status: 'dead' }
    case 'taken':
      if (!isDetected({ ...it, action: it.decision })) return undefined
      return { name: 'orphan:skipped', reason: `another bot claimed it first (${reason})` }
    default:
      return { name: 'orphan:skipped', reason }
  }
}

function eventOf(it: Wanted & { dryRun: boolean; status?: OrphanEvent['status'] | undefined }): OrphanEvent {
  const { pid, runId, startedAt, commandPreview } = it.record
  const atMs = epochMs()
  return {
    atMs,
    pid,
    runId,
    command: commandPreview,
    ageMs: startedAt > 0 ? Math.max(0, atMs - startedAt) : null,
    status: it.status ?? statusOf(it),
    reason: it.reason,
    dryRun: it.dryRun,
  }
}

function statusOf({ action, facts }: Pick<Wanted, 'action' | 'facts'>): OrphanEvent['status'] {
  switch (action) {
    case 'skip':
      return facts.reason?.startsWith('refused') ? 'refused' : 'unproven'
    case 'drop-reused':
      return 'reused'
    case 'drop':
      return 'dead'
    default:
      return 'confirmed'
  }
}
