// Which runs are meant. Pure.

import type { RunFilter, RunRecord } from '../index.js'
import { checkObject, readLabels } from './checks.js'
import { codedError, invalidType, invalidValue } from './errors.js'

/** What is known of a run, live or in the registry, by which it can be found. */
export interface Described {
  readonly runId: string
  readonly pid: number | undefined
  readonly sessionId?: string | null | undefined
  readonly scopeKey?: string | undefined
  /** The name of the service that it is. */
  readonly service?: string | undefined
  readonly labels?: Readonly<Record<string, string>> | undefined
}

export type Matcher = (run: Described) => boolean

const criteria = ['runId', 'sessionId', 'scopeKey', 'pid'] as const

/** Those runs, whichever they are; an empty filter is refused. */
export function matching(filter: RunFilter): Matcher {
  const { given, labels, unknown } = read(filter)
  if (given.length === 0 && labels.length === 0) throw emptyFilter(unknown)
  if (unknown.length > 0) throw unknownCriterion(filter, unknown)
  return all(filter, given, labels)
}

/** Those runs, or all of them. */
export function matchingOrAll(filter: RunFilter | undefined): Matcher {
  if (filter === undefined) return () => true
  checkObject(filter, 'filter')
  const { given, labels, unknown } = read(filter)
  if (unknown.length > 0) throw unknownCriterion(filter, unknown)
  return all(filter, given, labels)
}

/** A run id, or a filter. */
export function matchingTarget(target: unknown): Matcher {
  if (typeof target === 'string') return (run) => run.runId === target
  if (typeof target !== 'object' || target === null)
    throw invalidType('target', 'a run id, an OwnedProcess, an AdoptedRun or a filter', target)
  return matching(target)
}

/** What the native side can look for. It only narrows the search: what a target means is for `matches` to say. */
export function narrowed(target: unknown): RunFilter {
  if (typeof target === 'string') return { runId: target }
  const { runId, sessionId, scopeKey } = target as RunFilter
  const given = Object.entries({ runId, sessionId, scopeKey }).filter(
    ([, value]) => typeof value === 'string',
  )
  return Object.fromEntries(given)
}

type Criterion = (typeof criteria)[number]

function read(filter: RunFilter) {
  const given = criteria.filter((name) => filter[name] !== undefined)
  for (const name of given) checkCriterion(name, filter[name])
  const labels = Object.entries(readLabels(filter.labels, 'filter.labels'))
  const unknown = Object.keys(filter).filter(
    (key) => key !== 'labels' && !criteria.includes(key as Criterion),
  )
  return { given, labels, unknown }
}

/** One of another type could match nothing, which is not what whoever gives it means. Null matches nothing, and says so. */
function checkCriterion(name: Criterion, value: unknown): void {
  const expected = name === 'pid' ? 'number' : 'string'
  const type = typeof value
  if (value !== null && type !== expected) throw invalidType(`filter.${name}`, `of type ${expected}`, value)
}

function all(filter: RunFilter, given: readonly Criterion[], labels: readonly [string, string][]): Matcher {
  return (run) =>
    // What a run does not have matches nothing, not even null.
    given.every((name) => run[name] != null && run[name] === filter[name]) &&
    labels.every(([key, value]) => run.labels?.[key] === value)
}

function emptyFilter(unknown: readonly string[]): Error {
  const hint = unknown.length > 0 ? ` There is no criterion "${unknown.join('", "')}".` : ''
  return codedError(
    Error,
    'ERR_OWNED_EMPTY_FILTER',
    `A filter needs at least one of ${criteria.join(', ')} or a label; an empty one never means "everything".${hint}`,
  )
}

/** A criterion that is passed over would make the filter match more than was meant. */
function unknownCriterion(filter: RunFilter, [name]: readonly string[]): Error {
  const value = (filter as Record<string, unknown>)[String(name)]
  return invalidValue(`filter.${name}`, value, `is no criterion; use ${criteria.join(', ')} or labels`)
}

/** A run of spawnOwned, and not a process that was only registered. */
export function isSpawned({ containment, keeper }: RunRecord): boolean {
  // On Windows both have a job; only a run of spawnOwned has somebody who keeps it.
  return (
    containment === 'keeper' || containment === 'cgroup' || (containment === 'job' && keeper !== undefined)
  )
}
