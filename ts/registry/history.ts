// history: how ended runs ended, from the history and from the registry.

import type { EndedRun, HistoryFilter } from '../../index.js'
import { checkFilter, isRecordedEnd, matching } from '../run/run-filters.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { outOfRange } from '../util/errors.js'
import { HISTORY } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { epochMs } from '../util/timers.js'
import { duration } from '../util/validation.js'
import { endedRecord } from './ended-run.js'

/** Returns the matching ended runs, oldest first. */
export async function history(
  context: SupervisorContext,
  options: HistoryFilter | undefined,
): Promise<EndedRun[]> {
  const given = readOptions(options, HISTORY, { of: 'history', name: 'filter', strict: true })
  const { sinceMs, limit, ...filter } = given
  const since = duration(sinceMs, 'filter.sinceMs') ?? Number.POSITIVE_INFINITY
  const count = duration(limit, 'filter.limit') ?? Number.POSITIVE_INFINITY
  if (Math.trunc(count) !== count) throw outOfRange('filter.limit', 'an integer >= 0', limit)
  const matches = matching(checkFilter(filter))
  const written = (await context.history?.read()) ?? []
  // The end of a run without an owner is in the registry until a bot reaps or adopts it.
  const recorded = (await context.registry.find({})).filter(isRecordedEnd).map(endedRecord)
  const known = new Set(written.map(keyOf))
  const all = [...written, ...recorded.filter((run) => !known.has(keyOf(run)))]
  const after = epochMs() - since
  const found = all.filter((run) => matches(run) && run.endedAtMs >= after)
  found.sort((a, b) => a.endedAtMs - b.endedAtMs)
  return count === 0 ? [] : found.slice(-count)
}

const keyOf = ({ runId, pid }: EndedRun) => `${runId} ${pid}`
