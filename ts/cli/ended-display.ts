// How ended runs are displayed. Pure.

import type { EndedRun } from '../../index.js'
import { type Cell, type Column, counted } from './text.js'
import { formatAge } from './units.js'

export const ENDED_COLUMNS: readonly Column[] = [
  { title: 'RUN', least: 12 },
  { title: 'SESSION', least: 8, optional: 3 },
  { title: 'REASON' },
  { title: 'EXIT', optional: 1 },
  { title: 'ENDED', align: 'right', optional: 2 },
  { title: 'TOOK', align: 'right', optional: 4 },
  { title: 'COMMAND', flexible: true },
]

export function endedCells(run: EndedRun, shortId: string, now: number): Cell[] {
  return [
    { text: shortId, colour: 'dim' },
    { text: run.sessionId ?? '-' },
    { text: run.reason, colour: run.ok ? undefined : 'yellow' },
    { text: exitOf(run) },
    { text: `${formatAge(Math.max(0, now - run.endedAtMs))} ago` },
    { text: formatAge(run.durationMs) },
    { text: run.commandPreview },
  ]
}

/** Returns the exit code or the signal. */
export function exitOf({ exitCode, signal }: Pick<EndedRun, 'exitCode' | 'signal'>): string {
  return signal ?? (exitCode === null ? '-' : String(exitCode))
}

/** Returns the facts about an ended run, for `inspect`. */
export function endedFacts(run: EndedRun): [name: string, value: string][] {
  const labels = Object.entries(run.labels ?? {}).map(([key, value]) => `${key}=${value}`)
  const facts: [string, string | null | undefined][] = [
    ['run', run.runId],
    ['command', run.commandPreview],
    ['state', 'exited'],
    ['reason', run.reason],
    ['message', run.message],
    ['exit', exitOf(run)],
    ['session', run.sessionId],
    ['backend', run.backendId],
    ['scope', run.scopeKey],
    ['labels', labels.join(' ')],
    ['started', new Date(run.startedAt).toISOString()],
    ['ended', `${new Date(run.endedAtMs).toISOString()} (after ${formatAge(run.durationMs)})`],
    ['root', `pid ${run.pid}`],
    ['owner', `bot ${run.botPid}`],
    ['killed', run.forced > 0 ? `${counted(run.forced, 'process', 'processes')} with SIGKILL` : undefined],
    ['still alive', run.survivors > 0 ? counted(run.survivors, 'process', 'processes') : undefined],
  ]
  return facts.filter((fact): fact is [string, string] => Boolean(fact[1]))
}
