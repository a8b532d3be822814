import type { SurveyedProcess, SurveyedRun } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { asJson, filterOf, named, noRuns } from '../run-display.js'
import { type Cell, joined, type Paint, printable, truncated } from '../text.js'
import { formatAge, formatBytes, formatCpu } from '../units.js'

export async function tree(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  const [name] = request.words
  const all = await supervisor.survey(filterOf(request))
  const runs = name === undefined ? all : [named(all, name)]
  if (context.json) context.printJson({ runs: runs.map(asJson), ...context.problem })
  else if (runs.length > 0) context.print(...runs.flatMap((run) => treeOf(run, context.paint, context.width)))
  else if (!context.problem.registryProblem) context.say(noRuns(request, supervisor.registryPath))
  return 0
}

/** Returns a line for the run, and one for each process, below its parent. Pure. */
export function treeOf({ record, owner, members }: SurveyedRun, paint: Paint, width: number): string[] {
  const bot: Cell =
    owner === 'dead'
      ? { text: `bot ${record.botPid} is gone`, colour: 'red' }
      : { text: `bot ${record.botPid}` }
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
  // A process whose parent has ended is a child of the keeper.
  const tops = members.filter(({ ppid }) => !pids.has(ppid))
  tops.forEach((top, index) => {
    add(top, '', index === tops.length - 1)
  })
  if (members.length === 0) lines.push(paint('dim', '└─ no live process'))
  const head: Cell[] = [
    { text: printable(record.runId), colour: 'cyan' },
    { text: `  ${record.state}  ` },
    bot,
    { text: '  ' },
    { text: printable(record.commandPreview), colour: 'dim' },
  ]
  return [joined(head, width, paint), ...lines]
}

function lineOf(process: SurveyedProcess, before: string, paint: Paint, width: number): string {
  const { pid, command, ageMs, cpuMs, rssBytes, escaped } = process
  const facts = `${formatAge(ageMs)}  ${formatCpu(cpuMs)}  ${formatBytes(rssBytes)}`
  const mark = escaped ? '  left the session' : ''
  const room = width - before.length - String(pid).length - facts.length - mark.length - 3
  const cells: Cell[] = [
    { text: `${before}${pid} ` },
    { text: truncated(printable(command), Math.max(8, room)), colour: 'bold' },
    { text: '  ' },
    { text: facts, colour: 'dim' },
    { text: mark, colour: 'yellow' },
  ]
  return joined(cells, width, paint)
}
