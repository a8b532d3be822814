// orphan:detected, orphan:killed, orphan:skipped, orphan:failed: what reapOrphans finds and does, one event each. The event log
// says the same, in the same words (src/reap/note.rs).

import type { OrphanEvent, OrphanEventName, ReapDecision, RunRecord } from '../index.js'
import type { Owner } from './owner.js'

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
