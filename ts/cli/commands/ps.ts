import type { EndedRun, SurveyedRun } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { ENDED_COLUMNS, endedCells } from '../ended-display.js'
import { asJson, COLUMNS, cellsOf, filterOf, noRuns, shortIds } from '../run-display.js'
import { table } from '../text.js'

export async function ps(context: Context): Promise<Outcome> {
  const filter = filterOf(context.request)
  const runs = await context.supervisor.survey(filter)
  const ended = context.request.flag('all') ? await context.supervisor.history(filter) : undefined
  if (context.json) {
    context.printJson({ runs: runs.map(asJson), ...(ended && { ended }), ...context.problem })
    return 0
  }
  if (ended && ended.length > 0) {
    printAll(context, runs, ended)
    return 0
  }
  if (runs.length === 0) {
    if (!context.problem.registryProblem)
      context.say(noRuns(context.request, context.supervisor.registryPath))
    return 0
  }
  context.print(...liveTable(context, runs, shortIds(runs.map(({ record }) => record.runId))))
  return 0
}

function liveTable(
  context: Context,
  runs: readonly SurveyedRun[],
  ids: ReadonlyMap<string, string>,
): string[] {
  const rows = runs.map((run) => cellsOf(run, ids.get(run.record.runId) as string, Date.now()))
  return table(COLUMNS, rows, context)
}

/** Prints the live runs, if any, and then the ended ones, the latest first. */
function printAll(context: Context, runs: readonly SurveyedRun[], ended: readonly EndedRun[]): void {
  // Each printed id selects one run in `inspect`, so it is unique among live and ended runs.
  const all = new Set([...runs.map(({ record }) => record.runId), ...ended.map(({ runId }) => runId)])
  const ids = shortIds([...all])
  if (runs.length > 0) context.print(...liveTable(context, runs, ids), '')
  const rows = [...ended].reverse().map((run) => endedCells(run, ids.get(run.runId) as string, Date.now()))
  context.print(...table(ENDED_COLUMNS, rows, context))
}
