import { asJson, COLUMNS, cellsOf, filterOf, shortIds } from '../runs.js'
import type { Context, Outcome } from '../terminal.js'
import { table } from '../text.js'

export async function ps(context: Context): Promise<Outcome> {
  const runs = await context.supervisor.survey(filterOf(context.request))
  if (context.json) {
    context.printJson({ runs: runs.map(asJson) })
    return 0
  }
  if (runs.length === 0) {
    context.say(`Nothing runs in ${context.supervisor.registryPath}.`)
    return 0
  }
  const ids = shortIds(runs.map(({ record }) => record.runId))
  const rows = runs.map((run) => cellsOf(run, ids.get(run.record.runId) as string, Date.now()))
  context.print(...table(COLUMNS, rows, context))
  return 0
}
