import type { EndedRun, SurveyedRun } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { endedFacts } from '../ended-display.js'
import { asJson, named, totalsOf } from '../run-display.js'
import { counted, padded, printable } from '../text.js'
import { formatAge, formatBytes, formatCpu } from '../units.js'
import { treeOf } from './tree.js'

export async function show(context: Context): Promise<Outcome> {
  const [name] = context.request.words as [string]
  const run = named(await allRuns(context), name)
  if (!('members' in run)) {
    if (context.json) context.printJson({ ...run.record, state: 'exited', ...context.problem })
    else context.print(...linesOf(context, endedFacts(run.record)))
    return 0
  }
  if (context.json) {
    context.printJson({ ...asJson(run), ...context.problem })
    return 0
  }
  context.print(
    ...linesOf(context, factsOf(run, Date.now())),
    '',
    ...treeOf(run, context.paint, context.width).slice(1),
  )
  return 0
}

/** Returns the live runs, and the ended ones whose id no later run has. */
async function allRuns({ supervisor }: Context): Promise<(SurveyedRun | { record: EndedRun })[]> {
  const [live, ended] = [await supervisor.survey(), await supervisor.history()]
  const latest = new Map<string, SurveyedRun | { record: EndedRun }>()
  for (const record of ended) latest.set(record.runId, { record })
  for (const run of live) latest.set(run.record.runId, run)
  return [...latest.values()]
}

function linesOf({ paint }: Context, facts: readonly [name: string, value: string][]): string[] {
  const longest = Math.max(...facts.map(([name]) => name.length))
  return facts.map(([name, value]) => `${paint('bold', padded(name, longest))}  ${printable(value)}`)
}

function factsOf(run: SurveyedRun, now: number): [name: string, value: string][] {
  const { record, owner } = run
  const { cpuMs, rssBytes, processes } = totalsOf(run)
  const at = (ms: number | null) =>
    ms ? `${new Date(ms).toISOString()} (${formatAge(now - ms)} ago)` : 'never'
  const labels = Object.entries(record.labels ?? {}).map(([key, value]) => `${key}=${value}`)
  const facts: [string, string | null | undefined][] = [
    ['run', record.runId],
    ['command', record.commandPreview],
    ['state', record.state],
    ['session', record.sessionId],
    ['backend', record.backendId],
    ['scope', record.scopeKey],
    ['labels', labels.join(' ')],
    ['metadata', record.metadata === undefined ? undefined : JSON.stringify(record.metadata)],
    ['started', at(record.startedAt)],
    ['last output', record.lastOutputAtMs ? at(record.lastOutputAtMs) : undefined],
    ['root', `pid ${record.pid}`],
    ['start token', record.startToken],
    ['owner', `bot ${record.botPid}, ${owner === 'me' ? 'this process' : owner}`],
    ['lease until', record.leaseExpiresAtMs ? new Date(record.leaseExpiresAtMs).toISOString() : undefined],
    ['containment', record.containment],
    ['cgroup', record.cgroup],
    ['job', record.job],
    ['if bot exits', record.onOwnerExit === 'keep' ? 'the run continues' : 'the run is terminated'],
    ['grace', `${record.graceMs} ms`],
    [
      'uses',
      `${counted(processes, 'process', 'processes')}, ${formatCpu(cpuMs)} CPU, ${formatBytes(rssBytes)}`,
    ],
  ]
  return facts.filter((fact): fact is [string, string] => Boolean(fact[1]))
}
