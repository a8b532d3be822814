import type { CancelOptions, RunExit, SurveyedRun } from '../../../index.js'
import { filterOf, NothingFound, named } from '../runs.js'
import type { Context, Outcome } from '../terminal.js'
import { printable } from '../text.js'

export async function cancel(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  const runs = await selected(context)
  if (!context.json)
    for (const run of runs) context.print(`${request.flag('dry-run') ? 'would end' : 'ending'} ${whose(run)}`)
  if (request.flag('dry-run')) {
    if (context.json) context.printJson({ dryRun: true, runs: runs.map(({ record }) => record) })
    return 0
  }
  const [graceMs, signal] = [request.number('grace'), request.text('signal') as NodeJS.Signals | undefined]
  const options: CancelOptions = { ...(graceMs !== undefined && { graceMs }), ...(signal && { signal }) }
  const results = await Promise.all(runs.map(({ record }) => supervisor.cancel(record.runId, options)))
  const exits = results.flatMap(({ exits }) => exits)
  if (context.json) context.printJson({ dryRun: false, results })
  else for (const exit of exits) context.print(...endOf(exit))
  return exits.every(({ survivors }) => survivors.length === 0) ? 0 : 1
}

/** What is going to be ended. Never everything, because nothing was said. */
async function selected({ request, supervisor }: Context): Promise<SurveyedRun[]> {
  const [name] = request.words
  const filter = filterOf(request)
  if (name !== undefined && filter) throw request.error('a RUN and a filter: give one of them')
  if (name !== undefined) return [named(await supervisor.survey(), name)]
  if (!filter) throw request.error('what to cancel? Give a RUN, or --session, --scope or --label')
  const runs = await supervisor.survey(filter)
  if (runs.length === 0)
    throw new NothingFound(`no run matches ${JSON.stringify(filter)}; spawn-owned ps lists them`)
  return runs
}

/** Who it is, and what makes it ours. */
function whose({ record, owner, members }: SurveyedRun): string {
  const bot = owner === 'dead' ? `bot ${record.botPid}, which is gone` : `bot ${record.botPid}`
  return printable(
    `${record.runId}: ${record.commandPreview} (pid ${record.pid}, ${members.length} processes; ` +
      `recorded by ${bot}, held by ${record.containment})`,
  )
}

function endOf({ runId, message, survivors }: RunExit): string[] {
  return [
    `${runId}: ${message}`,
    ...survivors.map(({ pid, command, why }) => `  left: ${pid} ${command}: ${why}`),
  ].map(printable)
}
