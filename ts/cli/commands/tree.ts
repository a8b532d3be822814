import type { SurveyedProcess, SurveyedRun } from '../../../index.js'
import { formatAge, formatBytes, formatCpu } from '../durations.js'
import { asJson, filterOf, named } from '../runs.js'
import type { Context, Outcome } from '../terminal.js'
import { type Paint, printable, truncated } from '../text.js'

export async function tree(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  const [name] = request.words
  const all = await supervisor.survey(filterOf(request))
  const runs = name === undefined ? all : [named(all, name)]
  if (context.json) context.printJson({ runs: runs.map(asJson) })
  else if (runs.length === 0) context.say(`Nothing runs in ${supervisor.registryPath}.`)
  else context.print(...runs.flatMap((run) => treeOf(run, context.paint, context.width)))
  return 0
}

/** A line for the run, and below it its processes, each below its parent. Pure. */
export function treeOf({ record, owner, members }: SurveyedRun, paint: Paint, width: number): string[] {
  const bot = owner === 'dead' ? paint('red', `bot ${record.botPid} is gone`) : `bot ${record.botPid}`
  const pids = new Set(members.map(({ pid }) => pid))
  const childrenOf = (pid: number) => members.filter((member) => member.ppid === pid)
  const lines: string[] = []
  const add = (process: SurveyedProcess, before: string, isLast: boolean) => {
    lines.push(lineOf(process, `${before}${isLast ? '└─ ' : '├─ '}`, paint, width))
    const children = childrenOf(process.pid)
    children.forEach((child, index) => {
      add(child, `${before}${isLast ? '   ' : '│  '}`, index === children.length - 1)
    })
  }
  // Whoever has lost its parent came back to the keeper.
  const tops = members.filter(({ ppid }) => !pids.has(ppid))
  tops.forEach((top, index) => {
    add(top, '', index === tops.length - 1)
  })
  if (members.length === 0) lines.push(paint('dim', '└─ nothing of it is alive'))
  const preview = truncated(printable(record.commandPreview), Math.max(8, width - record.runId.length - 30))
  return [
    `${paint('cyan', printable(record.runId))}  ${record.state}  ${bot}  ${paint('dim', preview)}`,
    ...lines,
  ]
}

function lineOf(process: SurveyedProcess, before: string, paint: Paint, width: number): string {
  const { pid, command, ageMs, cpuMs, rssBytes, escaped } = process
  const facts = `${formatAge(ageMs)}  ${formatCpu(cpuMs)}  ${formatBytes(rssBytes)}`
  const mark = escaped ? '  left the session' : ''
  const name = truncated(
    printable(command),
    Math.max(8, width - before.length - facts.length - mark.length - 12),
  )
  return `${before}${pid} ${paint('bold', name)}  ${paint('dim', facts)}${escaped ? paint('yellow', mark) : ''}`
}
