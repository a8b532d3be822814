import type { OrphanReport } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { type Cell, counted, table } from '../text.js'
import { formatAge } from '../units.js'
import { cancel } from './cancel.js'
import { announce, COLUMNS, cellsOf, summaryOf } from './reap.js'

export async function kill(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  const [name] = request.words
  if (name !== undefined) return cancel(context, 'SIGKILL')
  const dryRun = request.flag('dry-run')
  const options = { dryRun, force: request.flag('force'), ...given(context) }
  if (!dryRun) await announceAll(context, options)
  const report = await supervisor.endOrphans(options)
  if (context.json) {
    context.printJson({ dryRun, ...report })
  } else {
    const rows = rowsOf(report)
    if (rows.length > 0) context.print(...table(COLUMNS, rows, context), '')
    context.print(`${summaryOf(report, dryRun)} ${suspectsOf(report, options.force, dryRun)}`)
  }
  const hasFailed = report.failed.length > 0 || report.suspected.some(({ outcome }) => outcome === 'failed')
  return hasFailed ? 1 : 0
}

/** Returns the options for suspects and times. */
export function given({ request }: Context): {
  patterns?: string[]
  projectDir?: string
  olderThanMs?: number
  graceMs?: number
} {
  const [patterns, projectDir] = [request.texts('pattern'), request.text('project')]
  const [olderThanMs, graceMs] = [request.number('older-than'), request.number('grace')]
  return {
    ...(patterns.length > 0 && { patterns }),
    ...(projectDir !== undefined && { projectDir }),
    ...(olderThanMs !== undefined && { olderThanMs }),
    ...(graceMs !== undefined && { graceMs }),
  }
}

async function announceAll(
  context: Context,
  options: { force: boolean; olderThanMs?: number },
): Promise<void> {
  const { decisions, suspected } = await context.supervisor.endOrphans({ ...options, dryRun: true })
  announce(context, decisions)
  for (const { pid, outcome, reason } of suspected)
    if (outcome === 'planned') context.say(`ending suspect ${pid}: it ${reason}`)
}

function rowsOf(report: OrphanReport): Cell[][] {
  const confirmed = report.decisions.filter(({ decision }) => decision !== 'leave').map(cellsOf)
  const suspected = report.suspected.map(({ pid, ageMs, outcome, reason, error, command }): Cell[] => [
    { text: String(pid) },
    { text: '-' },
    { text: formatAge(ageMs) },
    { text: 'suspected', colour: 'yellow' },
    { text: outcome === 'planned' ? 'would end' : outcome },
    { text: error ?? reason },
    { text: command },
  ])
  return [...confirmed, ...suspected]
}

function suspectsOf({ suspected }: OrphanReport, force: boolean, dryRun: boolean): string {
  const all = suspected.length
  if (all === 0) return 'No suspects.'
  if (!force) return `${counted(all, 'suspect')}; --force terminates ${all === 1 ? 'it' : 'them'}.`
  const matching = suspected.filter(({ outcome }) => outcome === (dryRun ? 'planned' : 'ended')).length
  return `${matching} of ${counted(all, 'suspect')} ${dryRun ? 'would be ended' : 'ended'}.`
}
