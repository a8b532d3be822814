import type { SurveyedRun } from '../../../index.js'
import { formatAge, formatBytes, formatCpu } from '../durations.js'
import { asJson, named, totalsOf } from '../runs.js'
import type { Context, Outcome } from '../terminal.js'
import { printable } from '../text.js'
import { treeOf } from './tree.js'

export async function show(context: Context): Promise<Outcome> {
  const run = named(await context.supervisor.survey(), context.request.words[0] as string)
  if (context.json) {
    context.printJson(asJson(run))
    return 0
  }
  const facts = factsOf(run, Date.now())
  const longest = Math.max(...facts.map(([name]) => name.length))
  context.print(
    ...facts.map(([name, value]) => `${context.paint('bold', name.padEnd(longest))}  ${printable(value)}`),
    '',
    ...treeOf(run, context.paint, context.width).slice(1),
  )
  return 0
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
    ['started', at(record.startedAt)],
    ['last output', record.lastOutputAtMs ? at(record.lastOutputAtMs) : undefined],
    ['root', `${record.pid} (${record.startToken ?? 'known by its age only'})`],
    ['owner', `${record.botPid}, ${owner === 'me' ? 'this process' : owner}`],
    ['lease until', record.leaseExpiresAtMs ? new Date(record.leaseExpiresAtMs).toISOString() : undefined],
    ['held by', record.containment],
    ['cgroup', record.cgroup],
    ['job', record.job],
    ['bot gone', record.onOwnerExit === 'keep' ? 'it is kept' : 'it is ended'],
    ['grace', `${record.graceMs} ms`],
    ['uses', `${processes} processes, ${formatCpu(cpuMs)} CPU, ${formatBytes(rssBytes)}`],
  ]
  return facts.filter((fact): fact is [string, string] => Boolean(fact[1]))
}
