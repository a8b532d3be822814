import type { CancelOptions, RunExit, SurveyedRun } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { asJson, describeFilter, filterOf, NothingFound, named } from '../run-display.js'
import { counted, printable } from '../text.js'

/** Terminates the selected runs. `defaultSignal` is the first signal, unless an option sets it. */
export async function cancel(context: Context, defaultSignal?: NodeJS.Signals): Promise<Outcome> {
  const { request, supervisor } = context
  const given = request.text('signal') as NodeJS.Signals | undefined
  const [graceMs, signal] = [request.number('grace'), given ?? defaultSignal]
  const runs = await selected(context)
  if (!context.json)
    for (const run of runs)
      context.print(`${request.flag('dry-run') ? 'would end' : 'ending'} ${describe(run)}`)
  if (request.flag('dry-run')) {
    if (context.json) context.printJson({ dryRun: true, runs: runs.map(asJson), ...context.problem })
    return 0
  }
  const options: CancelOptions = { ...(graceMs !== undefined && { graceMs }), ...(signal && { signal }) }
  const results = await Promise.all(runs.map(({ record }) => supervisor.cancel(record.runId, options)))
  const exits = results.flatMap(({ exits }) => exits)
  if (context.json) context.printJson({ dryRun: false, results, ...context.problem })
  else for (const exit of exits) context.print(...endOf(exit))
  return exits.every(({ survivors }) => survivors.length === 0) ? 0 : 1
}

/** Returns the selected runs. The parser has checked that there is a selection. */
async function selected({ request, supervisor }: Context): Promise<SurveyedRun[]> {
  const [name] = request.words
  if (name !== undefined) return [named(await supervisor.survey(), name)]
  const filter = filterOf(request)
  // Never all runs.
  if (!filter) throw request.error('no run is selected')
  const runs = await supervisor.survey(filter)
  if (runs.length === 0)
    throw new NothingFound(`no run matches ${describeFilter(request)}. "spawn-owned ps" lists the live runs`)
  return runs
}

/** Returns a line about a run, with its owner. */
function describe({ record, owner, members }: SurveyedRun): string {
  const bot = owner === 'dead' ? `bot ${record.botPid} (gone)` : `bot ${record.botPid}`
  return printable(
    `${record.runId}: ${record.commandPreview} (pid ${record.pid}, ${counted(members.length, 'process', 'processes')}; ` +
      `owner ${bot}, containment ${record.containment})`,
  )
}

function endOf({ runId, message, survivors }: RunExit): string[] {
  return [
    `${runId}: ${message}`,
    ...survivors.map(({ pid, command, why }) => `  left: ${pid} ${command}: ${why}`),
  ].map(printable)
}
