import type { ReapDecision, ReapReport } from '../../../index.js'
import { formatAge } from '../durations.js'
import type { Context, Outcome } from '../terminal.js'
import { type Cell, type Colour, type Column, table } from '../text.js'

export async function reap(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  const dryRun = request.flag('dry-run')
  const graceMs = request.number('grace')
  if (!dryRun) announce(context, (await supervisor.reapOrphans({ dryRun: true })).decisions)
  const report = await supervisor.reapOrphans({ dryRun, ...(graceMs !== undefined && { graceMs }) })
  if (context.json) {
    context.printJson({ dryRun, ...report })
  } else {
    const decisions = report.decisions.filter(({ decision }) => decision !== 'leave')
    if (decisions.length > 0) context.print(...table(COLUMNS, decisions.map(cellsOf), context), '')
    context.print(summaryOf(report, dryRun))
  }
  return report.failed.length > 0 ? 1 : 0
}

/** What is about to be ended, and why it is ours. */
export function announce({ say }: Context, decisions: readonly ReapDecision[]): void {
  for (const { decision, pid, record, reason } of decisions)
    if (decision === 'end') say(`ending ${record.runId} (pid ${pid}): ${reason}`)
}

export const COLUMNS: readonly Column[] = [
  { title: 'PID', align: 'right' },
  { title: 'RUN' },
  { title: 'AGE', align: 'right' },
  { title: 'STATUS' },
  { title: 'OUTCOME' },
  { title: 'REASON' },
  { title: 'COMMAND', flexible: true },
]

const COLOURS: Partial<Record<ReapDecision['outcome'], Colour>> = {
  ended: 'green',
  failed: 'red',
  skipped: 'yellow',
}

export function cellsOf({ pid, runId, decision, outcome, reason, error, record }: ReapDecision): Cell[] {
  const status = decision === 'end' || decision === 'adopt' ? 'confirmed' : decision
  return [
    { text: String(pid) },
    { text: runId },
    { text: record.startedAt > 0 ? formatAge(Date.now() - record.startedAt) : '?' },
    { text: status },
    { text: outcome === 'planned' ? `would ${verb(decision)}` : outcome, colour: COLOURS[outcome] },
    { text: error ?? reason },
    { text: record.commandPreview },
  ]
}

const verb = (decision: ReapDecision['decision']) =>
  decision === 'drop' || decision === 'drop-reused' ? 'forget' : decision

/** One line that says it all. */
export function summaryOf(report: ReapReport, dryRun: boolean): string {
  const toEnd = report.decisions.filter(({ decision }) => decision === 'end').length
  const parts = [
    dryRun ? `${toEnd} would be ended` : `${report.killed.length} ended`,
    `${report.alreadyDead.length} already gone`,
    `${report.skipped.length} skipped`,
    `${report.failed.length} failed`,
  ]
  return `${parts.join(', ')}.`
}
