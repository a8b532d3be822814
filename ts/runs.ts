// The runs of this bot: who is alive, who has just ended, and how to find them.

import type { CancelOptions, CancelResult, RunExit, RunFilter, RunTarget } from '../index.js'
import { codedError, invalidType } from './errors.js'
import { readLabels } from './options.js'
import type { OwnedProcess } from './owned-process.js'

/** How many ended runs are remembered, so that a cancel which comes late hears "already exited". */
const REMEMBERED = 1000

const live = new Map<string, OwnedProcess>()
const ended = new Map<string, OwnedProcess>()

export function add(run: OwnedProcess): void {
  live.set(run.runId, run)
}

export function isLive(runId: string): boolean {
  return live.has(runId)
}

export function remove(run: OwnedProcess): void {
  live.delete(run.runId)
  ended.set(run.runId, run)
  if (ended.size > REMEMBERED) {
    const [oldest] = ended.keys()
    if (oldest !== undefined) ended.delete(oldest)
  }
}

export async function cancel(target: RunTarget, options: CancelOptions = {}): Promise<CancelResult> {
  const found = find(target)
  if (found.length === 0) return { outcome: 'not-found', exits: [] }
  const exits: RunExit[] = await Promise.all(found.map((run) => run.cancel(options)))
  return { outcome: found.some((run) => run.wasCancelled) ? 'cancelled' : 'already-exited', exits }
}

function find(target: RunTarget): OwnedProcess[] {
  if (typeof target === 'string') {
    const run = live.get(target) ?? ended.get(target)
    return run ? [run] : []
  }
  if (typeof target !== 'object' || target === null) {
    throw invalidType('target', 'a run id, an OwnedProcess or a filter', target)
  }
  if (isRun(target)) return [target]
  const matches = matcher(target as RunFilter)
  const alive = [...live.values()].filter(matches)
  return alive.length > 0 ? alive : [...ended.values()].filter(matches)
}

function isRun(target: object): target is OwnedProcess {
  return typeof (target as Partial<OwnedProcess>).wait === 'function'
}

const criteria = ['runId', 'sessionId', 'scopeKey', 'pid'] as const

function matcher(filter: RunFilter): (run: OwnedProcess) => boolean {
  const given = criteria.filter((name) => filter[name] !== undefined)
  const labels = Object.entries(readLabels(filter.labels, 'filter.labels'))
  if (given.length === 0 && labels.length === 0) {
    throw codedError(
      Error,
      'ERR_OWNED_EMPTY_FILTER',
      `A filter needs at least one of ${criteria.join(', ')} or a label; an empty one never means "everything".`,
    )
  }
  return (run) =>
    given.every((name) => run[name] === filter[name]) &&
    labels.every(([key, value]) => run.labels[key] === value)
}
