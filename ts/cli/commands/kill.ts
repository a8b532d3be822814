import type { OrphanReport } from '../../../index.js'
import { formatAge } from '../durations.js'
import type { Context, Outcome } from '../terminal.js'
import { type Cell, table } from '../text.js'
import { announce, COLUMNS, cellsOf, summaryOf } from './reap.js'

export async function kill(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  if (!request.flag('orphans')) throw request.error('give --orphans; one run is ended by "cancel"')
  const dryRun = request.flag('dry-run')
  const options = { dryRun, force: request.flag('force'), ...given(context) }
  if (!dryRun) await announceAll(context, options)
  const report = await supervisor.endOrphans(options)
  if (context.json) {
    context.printJson({ dryRun, ...report })
  } else {
    const rows = rowsOf(report, dryRun)
    if (rows.length > 0) context.print(...table(COLUMNS, rows, context), '')
    context.print(`${summaryOf(report, dryRun)} ${suspectsOf(report, options.force)}`)
  }
  const hasFailed = report.failed.length > 0 || report.suspected.some(({ outcome }) => outcome === 'failed')
  return hasFailed ? 1 : 0
}

/** What was said of patterns, project and times. */
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
  if (!options.force) return
  for (const { pid, ageMs, reason } of suspected)
    if (ageMs >= (options.olderThanMs ?? 0)) context.say(`ending suspect ${pid}: it ${reason}`)
}

function rowsOf(report: OrphanReport, dryRun: boolean): Cell[][] {
  const confirmed = report.decisions.filter(({ decision }) => decision !== 'leave').map(cellsOf)
  const suspected = report.suspected.map(({ pid, ageMs, outcome, reason, error, command }): Cell[] => [
    { text: String(pid) },
    { text: '-' },
    { text: formatAge(ageMs) },
    { text: 'suspected', colour: 'yellow' },
    { text: dryRun ? 'reported' : outcome },
    { text: error ?? reason },
    { text: command },
  ])
  return [...confirmed, ...suspected]
}

function suspectsOf({ suspected }: OrphanReport, force: boolean): string {
  if (suspected.length === 0) return 'No suspects.'
  const ended = suspected.filter(({ outcome }) => outcome === 'ended').length
  return force
    ? `${ended} of ${suspected.length} suspects ended.`
    : `${suspected.length} suspects; --force ends them.`
}
