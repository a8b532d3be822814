// orphan:detected, orphan:killed, orphan:skipped, orphan:failed: what is found and done about orphans, one event each. The event log
// says the same, in the same words: the native side writes down what it reaps (src/reap/note.rs), and we what else there is to say.

import type { OrphanEvent, OrphanEventName, ReapDecision, RunRecord, Suspect } from '../index.js'
import type { Owner } from './owner.js'
import type { OrphanLine } from './registry.js'

/** What is to be done about an entry. */
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
/** Somebody answers for it, or nobody has to. */
const answered = new Set(['own-run', 'owner-alive', 'lease-expired-owner-alive', 'owner-unknown', 'service'])
const DIED = 'it had ended by the time it was to be ended'

/** Whether anybody wants to hear of orphans, which takes time if there are many. */
export function isHeard(owner: Owner): boolean {
  return names.some((name) => owner.events.hasListener(name))
}

/** To be called before anybody is signalled. */
export function tellDetected(owner: Owner, wanted: readonly Wanted[], dryRun: boolean): void {
  tellAll(owner, 'orphan:detected', wanted, dryRun)
}

/** Nobody was touched. */
export function tellFailed(owner: Owner, wanted: readonly Wanted[], error: Error): void {
  tellAll(owner, 'orphan:failed', wanted, false, error.message)
}

/** What became of them. */
export function tellSettled(owner: Owner, decisions: readonly ReapDecision[]): void {
  if (!isHeard(owner)) return
  for (const decision of decisions) {
    const told = decision.dryRun ? undefined : outcomeOf(decision)
    if (told) owner.events.tellOrphan(told.name, eventOf({ ...decision, action: decision.decision, ...told }))
  }
}

/** Something about orphans that are not being reaped. */
export interface Told {
  readonly name: OrphanEventName
  readonly event: OrphanEvent
}

/** A confirmed orphan that is only looked at. */
export const seen = (decision: ReapDecision): Told => ({
  name: 'orphan:detected',
  event: eventOf({ ...decision, action: decision.decision, dryRun: true }),
})

export function aboutSuspect(
  name: OrphanEventName,
  { pid, command, ageMs }: Suspect,
  reason: string,
  dryRun: boolean,
): Told {
  const who = { pid, runId: null, command, ageMs, status: 'suspected' } as const
  return { name, event: { atMs: Date.now(), ...who, reason, dryRun } }
}

/** Written down before it is told: whoever hears of it finds it in the log. A log that cannot be written to holds nothing up. */
export async function tellAndNote(owner: Owner, told: readonly Told[]): Promise<void> {
  if (told.length === 0) return
  await owner.writing().note(told.map(lineOf))
  tellOnly(owner, told)
}

/** Without a line: a dry run changes nothing. */
export function tellOnly(owner: Owner, told: readonly Told[]): void {
  for (const { name, event } of told) owner.events.tellOrphan(name, event)
}

function lineOf({ name, event }: Told): OrphanLine {
  const { pid, command, ageMs, status, reason } = event
  return { what: name.slice('orphan:'.length), pid, command, ageMs, status, reason }
}

function tellAll(
  owner: Owner,
  name: OrphanEventName,
  wanted: readonly Wanted[],
  dryRun: boolean,
  reason?: string,
): void {
  if (!owner.events.hasListener(name)) return
  for (const one of wanted.filter(isDetected))
    owner.events.tellOrphan(name, eventOf({ ...one, dryRun, reason: reason ?? one.reason }))
}

const isOrphan = ({ facts }: Pick<Wanted, 'facts'>) => !answered.has(String(facts.reason))

/** … and something of it may be alive. */
const isDetected = (it: Pick<Wanted, 'facts' | 'action'>) =>
  isOrphan(it) && it.action !== 'drop' && it.action !== 'drop-reused'

/** What became of it, if that is ours to say. */
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
      return { name: 'orphan:skipped', reason: `taken over by policy (${reason})` }
    case 'already-dead':
      return { name: 'orphan:skipped', reason: it.decision === 'drop' ? reason : DIED, status: 'dead' }
    case 'taken':
      if (!isDetected({ ...it, action: it.decision })) return undefined
      return { name: 'orphan:skipped', reason: `another bot was faster (${reason})` }
    default:
      return { name: 'orphan:skipped', reason }
  }
}

function eventOf(it: Wanted & { dryRun: boolean; status?: OrphanEvent['status'] | undefined }): OrphanEvent {
  const { pid, runId, startedAt, commandPreview } = it.record
  const atMs = Date.now()
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
