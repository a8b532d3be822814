// Reads and matches targets and filters of runs. Pure.

import type { RunFilter, RunRecord } from '../../index.js'
import { codedError, invalidType } from '../util/errors.js'
import { FILTER } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { nearest } from '../util/spelling.js'
import { reading, readLabels } from '../util/validation.js'

/** The properties of a run, live or in the registry, that a filter can match. */
export interface Described {
  readonly runId: string
  readonly pid: number | undefined
  /** The start token of the root process, if known. */
  readonly startToken?: string | null | undefined
  readonly sessionId?: string | null | undefined
  readonly scopeKey?: string | undefined
  /** The name of the service, if the run is one. */
  readonly service?: string | undefined
  readonly labels?: Readonly<Record<string, string>> | undefined
}

export type Matcher = (run: Described) => boolean

const criteria = ['runId', 'sessionId', 'scopeKey', 'pid'] as const

/**
 * Returns a copy of a filter. It reads each value once.
 *
 * An unknown key is an error: without it the filter would match more than the caller wants.
 */
export function readFilter(filter: unknown, of: string): RunFilter {
  return checkFilter(readOptions(filter, FILTER, { of, name: 'filter', strict: true }))
}

/** Checks the values of a filter, and returns it with a copy of its labels. */
export function checkFilter({ labels, ...given }: RunFilter): RunFilter {
  for (const name of criteria) checkCriterion(name, given[name])
  return labels === undefined ? given : { ...given, labels: readLabels(labels, 'filter.labels') }
}

/** Returns a copy of a target: a run id or a filter. */
export function readTarget(target: unknown, of: string): string | RunFilter {
  if (typeof target === 'string') return target
  if (typeof target !== 'object' || target === null)
    throw invalidType(
      'target',
      'a run id, an OwnedProcess, an AdoptedRun, a ChildProcess or a filter',
      target,
    )
  const names = reading('target', () => (Array.isArray(target) ? [] : Object.keys(target)))
  if (!names.some((name) => FILTER.has(name))) throw emptyFilter(names)
  return readFilter(target, of)
}

/** Returns the matcher of a target. Throws for an empty filter. */
export function matchingTarget(target: string | RunFilter): Matcher {
  if (typeof target === 'string') return (run) => run.runId === target
  if (isEmpty(target)) throw emptyFilter([])
  return matching(target)
}

/**
 * Returns the matcher of a filter. An empty filter matches every run.
 *
 * The filter must be a copy, see {@link readFilter}.
 */
export function matching(filter: RunFilter): Matcher {
  const given = criteria.filter((name) => filter[name] !== undefined)
  const labels = Object.entries(filter.labels ?? {})
  return (run) =>
    // A property that the run does not have never matches, not even null.
    given.every((name) => run[name] != null && run[name] === filter[name]) &&
    labels.every(([key, value]) => run.labels?.[key] === value)
}

const isEmpty = (filter: RunFilter) =>
  criteria.every((name) => filter[name] === undefined) && Object.keys(filter.labels ?? {}).length === 0

/** Returns a matcher for the run whose root process has this start token. */
export function byToken(token: string): Matcher {
  return (run) => run.startToken === token
}

/** Returns the filter for the native side. It only narrows the search: `matches` decides. */
export function narrowed(target: string | RunFilter): RunFilter {
  if (typeof target === 'string') return { runId: target }
  const { runId, sessionId, scopeKey } = target
  const given = Object.entries({ runId, sessionId, scopeKey }).filter(
    ([, value]) => typeof value === 'string',
  )
  return Object.fromEntries(given)
}

type Criterion = (typeof criteria)[number]

/**
 * Throws for a value of another type: it could never match. Null is allowed, and matches nothing.
 */
function checkCriterion(name: Criterion, value: unknown): void {
  const expected = name === 'pid' ? 'number' : 'string'
  const type = typeof value
  if (value != null && type !== expected) throw invalidType(`filter.${name}`, `of type ${expected}`, value)
}

function emptyFilter(unknown: readonly string[]): Error {
  const [name] = unknown
  const meant = name === undefined ? undefined : nearest(name, FILTER)
  const hint =
    name === undefined
      ? ''
      : ` There is no criterion '${name}'${meant === undefined ? '.' : `; did you mean '${meant}'?`}`
  return codedError(
    Error,
    'ERR_OWNED_EMPTY_FILTER',
    `A filter needs at least one of ${criteria.join(', ')} or a label. An empty filter never means "all runs".${hint}`,
  )
}

/** Whether the run ended after its bot, and its keeper recorded that no process is left. */
export function isRecordedEnd({ state, exit }: RunRecord): boolean {
  return state === 'exited' && exit !== undefined && exit.survivors === 0
}

/** Whether spawnOwned started the run. False for a registered process. */
export function isSpawned({ containment, keeper }: RunRecord): boolean {
  // On Windows both have a job object. Only a run of spawnOwned has a keeper.
  return (
    containment === 'keeper' || containment === 'cgroup' || (containment === 'job' && keeper !== undefined)
  )
}
