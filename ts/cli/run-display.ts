// How runs are selected and displayed. Pure.

import type { RunFilter, SurveyedRun } from '../../index.js'
import type { Request } from './parse.js'
import type { Cell, Column } from './text.js'
import { formatAge, formatBytes, formatCpu } from './units.js'

/** No run matches the selection. */
export class NothingFound extends Error {}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/**
 * Returns a short form of each id: as many characters as make it unique, but at least 8.
 *
 * Ids that a caller chose stay complete.
 */
export function shortIds(ids: readonly string[]): Map<string, string> {
  const shortest = (id: string) => {
    for (let length = 8; length < id.length; length++) {
      const short = id.slice(0, length)
      if (!ids.some((other) => other !== id && other.startsWith(short))) return short
    }
    return id
  }
  return new Map(ids.map((id) => [id, UUID.test(id) ? shortest(id) : id]))
}

/** Returns the filter of the options, if any. */
export function filterOf(request: Request): RunFilter | undefined {
  const [sessionId, scopeKey, labels] = [request.text('session'), request.text('scope'), request.labels()]
  if (sessionId === undefined && scopeKey === undefined && labels === undefined) return undefined
  return {
    ...(sessionId !== undefined && { sessionId }),
    ...(scopeKey !== undefined && { scopeKey }),
    ...(labels !== undefined && { labels }),
  }
}

/** How many ids the error of an ambiguous prefix lists. */
const CANDIDATES = 10

/** Returns the filter as options of the command line: `--session x --label a=b`. */
export function describeFilter(request: Request): string {
  const given = ['session', 'scope'].flatMap((name) =>
    request.has(`--${name}`) ? [`--${name} ${request.text(name)}`] : [],
  )
  return [...given, ...request.texts('label').map((label) => `--label ${label}`)].join(' ')
}

/** Returns the run with this id, or the only run whose id starts with it. */
export function named<T extends { record: { runId: string } }>(runs: readonly T[], name: string): T {
  const exact = runs.filter(({ record }) => record.runId === name)
  const found = exact.length > 0 ? exact : runs.filter(({ record }) => record.runId.startsWith(name))
  const [first, second] = found
  if (!first)
    throw new NothingFound(`no run "${name}" is in the registry. "spawn-owned ps -a" lists all runs`)
  if (second) {
    const ids = found.slice(0, CANDIDATES).map(({ record }) => record.runId)
    const others = found.length - ids.length
    const list = `${ids.join(', ')}${others > 0 ? ` and ${others} more` : ''}`
    throw new NothingFound(`"${name}" matches ${found.length} runs: ${list}. Use more characters of the id`)
  }
  return first
}

export interface Totals {
  readonly cpuMs: number
  readonly rssBytes: number
  readonly processes: number
}

export function totalsOf({ members }: Pick<SurveyedRun, 'members'>): Totals {
  return members.reduce(
    (sum, { cpuMs, rssBytes }) => ({
      cpuMs: sum.cpuMs + cpuMs,
      rssBytes: sum.rssBytes + rssBytes,
      processes: sum.processes + 1,
    }),
    { cpuMs: 0, rssBytes: 0, processes: 0 },
  )
}

/** Returns a run for `--json`: the record, and what the survey found. */
export function asJson(run: SurveyedRun): object {
  return { ...run.record, owner: run.owner, ...totalsOf(run), members: run.members }
}

export const COLUMNS: readonly Column[] = [
  { title: 'RUN', least: 12 },
  { title: 'SESSION', least: 8, optional: 2 },
  { title: 'STATE' },
  { title: 'AGE', align: 'right', optional: 1 },
  { title: 'CPU', align: 'right', optional: 5 },
  { title: 'MEM', align: 'right', optional: 4 },
  { title: 'PROCS', align: 'right', optional: 6 },
  { title: 'CONTAINMENT', optional: 7 },
  { title: 'OWNER', optional: 3 },
  { title: 'COMMAND', flexible: true },
]

/** Returns the cells of a run. `cpu` replaces the CPU time. */
export function cellsOf(run: SurveyedRun, shortId: string, now: number, cpu?: string): Cell[] {
  const { record, owner } = run
  const { cpuMs, rssBytes, processes } = totalsOf(run)
  return [
    { text: shortId, colour: 'cyan' },
    { text: record.sessionId ?? '-' },
    stateOf(run),
    { text: formatAge(now - record.startedAt) },
    { text: cpu ?? formatCpu(cpuMs) },
    { text: formatBytes(rssBytes) },
    { text: String(processes) },
    { text: record.containment },
    { text: ownerOf(run), colour: owner === 'dead' ? 'red' : undefined },
    { text: record.commandPreview },
  ]
}

/** Returns the state. A run whose bot is gone is orphaned, or kept if it may outlive its bot. */
function stateOf({ record, owner }: SurveyedRun): Cell {
  if (record.state === 'exited') return { text: 'exited', colour: 'dim' }
  if (owner !== 'dead') return { text: record.state, colour: record.state === 'running' ? 'green' : 'yellow' }
  return record.onOwnerExit === 'keep' && record.containment !== 'process' && record.containment !== 'group'
    ? { text: 'kept', colour: 'yellow' }
    : { text: 'orphaned', colour: 'red' }
}

function ownerOf({ record, owner }: SurveyedRun): string {
  const pid = record.botPid > 0 ? String(record.botPid) : '-'
  if (owner === 'dead') return `${pid} dead`
  return owner === 'unknown' ? `${pid} ?` : pid
}

/** Returns what to print if no run was found. */
export function noRuns(request: Request, registryPath: string): string {
  const filter = describeFilter(request)
  if (filter) return `No run in ${registryPath} matches ${filter}.`
  return `No runs in ${registryPath}. If your bot uses another registry, pass --registry PATH.`
}
