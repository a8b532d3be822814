import type { ReapDecision, ReapReport } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { type Cell, type Colour, type Column, table } from '../text.js'
import { formatAge } from '../units.js'

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

/** Prints the runs that are about to be terminated, with the reason. */
export function announce({ say }: Context, decisions: readonly ReapDecision[]): void {
  for (const { decision, pid, record, reason } of decisions)
    if (decision === 'end') say(`ending ${record.runId} (pid ${pid}): ${reason}`)
}

export const COLUMNS: readonly Column[] = [
  { title: 'PID', align: 'right' },
  { title: 'RUN', least: 12, optional: 1 },
  { title: 'AGE', align: 'right', optional: 3 },
  { title: 'STATUS', optional: 2 },
  { title: 'OUTCOME' },
  { title: 'REASON', least: 20 },
  { title: 'COMMAND', flexible: true },
]

/** What the command found out about an entry of the registry. */
const STATUSES: Record<ReapDecision['decision'], string> = {
  end: 'confirmed',
  adopt: 'confirmed',
  drop: 'gone',
  'drop-reused': 'PID reused',
  skip: 'skipped',
  leave: 'left',
}

const COLOURS: Partial<Record<ReapDecision['outcome'], Colour>> = {
  ended: 'green',
  failed: 'red',
  skipped: 'yellow',
}

export function cellsOf({ pid, runId, decision, outcome, reason, error, record }: ReapDecision): Cell[] {
  return [
    { text: String(pid) },
    { text: runId },
    { text: record.startedAt > 0 ? formatAge(Date.now() - record.startedAt) : '?' },
    { text: STATUSES[decision] },
    { text: outcomeText(decision, outcome), colour: COLOURS[outcome] },
    { text: error ?? reason },
    { text: record.commandPreview },
  ]
}

function outcomeText(decision: ReapDecision['decision'], outcome: ReapDecision['outcome']): string {
  if (outcome === 'already-dead') return 'entry removed'
  if (outcome !== 'planned') return outcome
  return decision === 'drop' || decision === 'drop-reused' ? 'would remove entry' : `would ${decision}`
}

/** Returns the summary line. */
export function summaryOf(report: ReapReport, dryRun: boolean): string {
  // Count PIDs, as `killed` does: several entries can name one process.
  const toEnd = new Set(report.decisions.flatMap(({ decision, pid }) => (decision === 'end' ? [pid] : [])))
    .size
  const parts = [
    dryRun ? `${toEnd} would be ended` : `${report.killed.length} ended`,
    `${report.alreadyDead.length} already gone`,
    `${report.skipped.length} skipped`,
    `${report.failed.length} failed`,
  ]
  return `${parts.join(', ')}.`
}
