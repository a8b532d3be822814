// `spawn-owned`, the command line. What each command does is in cli/commands/.

import type * as Public from '../index.js'
import { version } from '../package.json'
import { cancel } from './cli/commands/cancel.js'
import { completion } from './cli/commands/completion.js'
import { doctor } from './cli/commands/doctor.js'
import { events } from './cli/commands/events.js'
import { kill } from './cli/commands/kill.js'
import { metrics } from './cli/commands/metrics.js'
import { ps } from './cli/commands/ps.js'
import { reap } from './cli/commands/reap.js'
import { runCommand } from './cli/commands/run.js'
import { show } from './cli/commands/show.js'
import { top } from './cli/commands/top.js'
import { tree } from './cli/commands/tree.js'
import { watch } from './cli/commands/watch.js'
import { helpOf, manPage, overview } from './cli/help.js'
import { parse, type Request, UsageError } from './cli/parse.js'
import { NothingFound } from './cli/runs.js'
import { type Context, type Outcome, paintFor, widthFor } from './cli/terminal.js'
import { printable } from './cli/text.js'

type Handler = (context: Context) => Outcome | Promise<Outcome>

const HANDLERS: Readonly<Record<string, Handler>> = {
  ps,
  tree,
  show,
  top,
  events,
  metrics,
  cancel,
  reap,
  kill,
  watch,
  run: runCommand,
  doctor,
  completion,
}

const [FAILED, MISUNDERSTOOD, NOTHING_FOUND] = [1, 2, 3]
/** Where help is read, lines are not longer than this. */
const READABLE = 100

async function main(argv: readonly string[]): Promise<Outcome> {
  const paint = paintFor(process.env, process.stdout.isTTY)
  const width = Math.min(READABLE, widthFor(process.stdout, process.env))
  const [first, second] = argv
  if (first === '--version' || first === '-V') return printed([version])
  if (first === undefined || first === '--help' || first === '-h' || first === 'help') {
    if (second === undefined) return printed(overview(paint, width), first === undefined ? MISUNDERSTOOD : 0)
    return main([second, '--help'])
  }
  // For the build.
  if (first === '--man-page') return printed(manPage(version))
  const request = parse(argv)
  if (request.flag('help')) return printed(helpOf(request.command, paint, width))
  return (HANDLERS[request.command.name] as Handler)(contextOf(request))
}

function printed(lines: readonly string[], outcome: Outcome = 0): Outcome {
  process.stdout.write(`${lines.join('\n')}\n`)
  return outcome
}

function contextOf(request: Request): Context {
  const print = (...lines: string[]) => void process.stdout.write(lines.map((line) => `${line}\n`).join(''))
  const registryPath = request.text('registry')
  let supervisor: Public.Supervisor | undefined
  return {
    request,
    get owned() {
      return require('./index.js') as typeof Public
    },
    get supervisor() {
      supervisor ??= this.owned.createSupervisor(registryPath === undefined ? {} : { registryPath })
      return supervisor
    },
    json: request.flag('json'),
    width: widthFor(process.stdout, process.env),
    paint: paintFor(process.env, process.stdout.isTTY),
    print,
    printJson: (value) => print(JSON.stringify(value)),
    say: (line) => void process.stderr.write(`${printable(line)}\n`),
  }
}

function explain(error: unknown): Outcome {
  const { message, code } = error as NodeJS.ErrnoException
  const [where, outcome] =
    error instanceof UsageError
      ? [` Try "spawn-owned ${error.command ? `${error.command} ` : ''}--help".`, MISUNDERSTOOD]
      : ['', error instanceof NothingFound ? NOTHING_FOUND : FAILED]
  const sentence = /[.?!]$/.test(message) ? message : `${message}.`
  process.stderr.write(`${printable(`spawn-owned: ${sentence}${where}${code ? ` (${code})` : ''}`)}\n`)
  return outcome
}

/** Those that change something finish what they have begun, whether or not somebody listens. */
const FINISHES = new Set(['cancel', 'reap', 'kill', 'run', 'watch'])

// Whoever reads has had enough (`spawn-owned ps | head`), or the terminal is gone.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', () => {
    if (!FINISHES.has(process.argv[2] ?? '')) process.exit(0)
  })
}

main(process.argv.slice(2)).then(
  (outcome) => {
    process.exitCode = outcome
  },
  (error) => {
    process.exitCode = explain(error)
  },
)
