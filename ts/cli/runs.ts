// Runs as people name and see them. Pure.

import type { RunFilter, SurveyedRun } from '../../index.js'
import { formatAge, formatBytes, formatCpu } from './durations.js'
import type { Request } from './parse.js'
import type { Cell, Column } from './text.js'

/** Nothing is what was asked for. */
export class NothingFound extends Error {}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** As much of each id as it takes to tell it from all others, but no less than 8 characters. Ids that people have chosen stay whole. */
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

/** The filter that the options spell, if they do. */
export function filterOf(request: Request): RunFilter | undefined {
  const [sessionId, scopeKey, labels] = [request.text('session'), request.text('scope'), request.labels()]
  if (sessionId === undefined && scopeKey === undefined && labels === undefined) return undefined
  return {
    ...(sessionId !== undefined && { sessionId }),
    ...(scopeKey !== undefined && { scopeKey }),
    ...(labels !== undefined && { labels }),
  }
}

/** The run with that id, or the only one whose id begins so. */
export function named<T extends { record: { runId: string } }>(runs: readonly T[], name: string): T {
  const exact = runs.filter(({ record }) => record.runId === name)
  const found = exact.length > 0 ? exact : runs.filter(({ record }) => record.runId.startsWith(name))
  const [first, second] = found
  if (!first) throw new NothingFound(`there is no run "${name}" in the registry; spawn-owned ps lists them`)
  if (second) {
    const ids = found.map(({ record }) => record.runId).join(', ')
    throw new NothingFound(`"${name}" may be one of ${found.length} runs: ${ids}`)
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

/** What scripts get. Everything of the record, and what was seen. */
export function asJson(run: SurveyedRun): object {
  return { ...run.record, owner: run.owner, ...totalsOf(run), members: run.members }
}

export const COLUMNS: readonly Column[] = [
  { title: 'RUN' },
  { title: 'SESSION' },
  { title: 'STATE' },
  { title: 'AGE', align: 'right' },
  { title: 'CPU', align: 'right' },
  { title: 'MEM', align: 'right' },
  { title: 'PROCS', align: 'right' },
  { title: 'TIER' },
  { title: 'OWNER' },
  { title: 'COMMAND', flexible: true },
]

/** `cpu`: what is shown instead of the time it has used. */
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

/** An orphan is one whose bot is gone; a kept run is meant to be without one. */
function stateOf({ record, owner }: SurveyedRun): Cell {
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
