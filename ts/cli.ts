// `spawn-owned`: the command line. Each command is a file in cli/commands/.

import { join } from 'node:path'
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
import { type Context, type Outcome, paintFor, widthFor } from './cli/context.js'
import { type HelpStyle, helpOf, overview } from './cli/help.js'
import { withFlags } from './cli/library-errors.js'
import { parse, type Request, UsageError } from './cli/parse.js'
import { NothingFound } from './cli/run-display.js'
import { printable } from './cli/text.js'

type Handler = (context: Context) => Outcome | Promise<Outcome>

const HANDLERS: Readonly<Record<string, Handler>> = {
  ps,
  tree,
  show,
  inspect: show,
  top,
  events,
  metrics,
  cancel,
  stop: cancel,
  reap,
  kill,
  watch,
  run: runCommand,
  doctor,
  completion,
}

const [FAILED, MISUNDERSTOOD, NOTHING_FOUND, UNREADABLE] = [1, 2, 3, 4]
const HELP: ReadonlySet<string> = new Set(['help', '--help', '-h'])
/** The longest line of help. */
const READABLE = 100

async function main(argv: readonly string[]): Promise<Outcome> {
  const style = styleFor(process.stdout)
  const [first, second] = argv
  if (first === undefined) {
    process.stderr.write(`${overview(styleFor(process.stderr)).join('\n')}\n`)
    return MISUNDERSTOOD
  }
  if (first === '--version' || first === '-V') {
    refuseMore(argv, 1)
    return printed([version])
  }
  if (HELP.has(first)) {
    refuseMore(argv, 2)
    if (second === undefined || HELP.has(second)) return printed(overview(style))
    return printed(helpOf(parse([second, '--help']).command, style))
  }
  const request = parse(argv)
  if (request.flag('help')) return printed(helpOf(request.command, style))
  return (HANDLERS[request.command.name] as Handler)(contextOf(request))
}

function styleFor(stream: NodeJS.WriteStream): HelpStyle {
  const page = join(__dirname, 'spawn-owned.1')
  return {
    paint: paintFor(process.env, stream.isTTY),
    width: Math.min(READABLE, widthFor(stream, process.env)),
    manual: process.platform === 'win32' ? page : `man ${page}`,
  }
}

/** Throws if more arguments are given. */
function refuseMore(argv: readonly string[], most: number): void {
  if (argv.length > most) throw new UsageError(`unexpected argument "${argv[most]}"`)
}

/** The part of the registry that could not be read. */
let problem: Public.RegistryProblem | undefined
/** The command that exits with the exit status of its own command. */
const PASSES_ON = 'run'

/**
 * Returns the exit code. An unreadable registry takes precedence over success and "nothing found".
 */
function finalOutcome(outcome: Outcome): Outcome {
  const isClear = outcome === 0 || outcome === NOTHING_FOUND
  return problem && isClear && process.argv[2] !== PASSES_ON ? UNREADABLE : outcome
}

/**
 * Prints warnings about the registry. `top` owns the screen, so its warnings are printed at exit.
 */
function printWarnings(supervisor: Public.Supervisor, command: string, say: Context['say']): void {
  supervisor.on('event', (event) => {
    if (event.type !== 'registry') return
    const { kind, message, path } = event
    const warn = () => say(`spawn-owned: warning: ${withFlags(message)}`)
    if (kind === 'unreadable' || kind === 'corrupt') problem ??= { kind, message, path }
    if (command === 'top') process.once('exit', warn)
    else warn()
  })
}

function printed(lines: readonly string[], outcome: Outcome = 0): Outcome {
  process.stdout.write(`${lines.join('\n')}\n`)
  return outcome
}

function contextOf(request: Request): Context {
  const print = (...lines: string[]) => void process.stdout.write(lines.map((line) => `${line}\n`).join(''))
  const registryPath = request.text('registry')
  const say = (line: string) => void process.stderr.write(`${printable(line)}\n`)
  let supervisor: Public.Supervisor | undefined
  return {
    request,
    get owned() {
      return require('./index.js') as typeof Public
    },
    get supervisor() {
      if (!supervisor) {
        supervisor = this.owned.createSupervisor(registryPath === undefined ? {} : { registryPath })
        printWarnings(supervisor, request.command.name, say)
      }
      return supervisor
    },
    get problem() {
      return problem ? { registryProblem: problem } : {}
    },
    json: request.flag('json'),
    width: widthFor(process.stdout, process.env),
    paint: paintFor(process.env, process.stdout.isTTY),
    print,
    printJson: (value) => print(JSON.stringify(value)),
    say,
  }
}

function explain(error: unknown): Outcome {
  const { code } = error as NodeJS.ErrnoException
  const message = withFlags((error as Error).message)
  const [where, outcome] =
    error instanceof UsageError
      ? [` Try "spawn-owned ${error.command ? `${error.command} ` : ''}--help".`, MISUNDERSTOOD]
      : ['', outcomeOf(error, code)]
  const sentence = /[.?!]$/.test(message) ? message : `${message}.`
  process.stderr.write(`${printable(`spawn-owned: ${sentence}${where}${code ? ` (${code})` : ''}`)}\n`)
  return outcome
}

/** The error codes of a registry that cannot be read at all. */
const REFUSED = new Set<string | undefined>([
  'ERR_OWNED_REGISTRY_UNREADABLE',
  'ERR_OWNED_REGISTRY_SYMLINK',
  'ERR_OWNED_REGISTRY_NOT_A_FILE',
  'ERR_OWNED_REGISTRY_LINKED',
  'ERR_OWNED_REGISTRY_FOREIGN',
  'ERR_OWNED_REGISTRY_NEWER',
  'ERR_OWNED_REGISTRY_CORRUPT',
])

function outcomeOf(error: unknown, code: string | undefined): Outcome {
  if (error instanceof NothingFound) return NOTHING_FOUND
  return REFUSED.has(code) && process.argv[2] !== PASSES_ON ? UNREADABLE : FAILED
}

/** The commands that terminate processes. They finish even if their output is closed. */
const FINISHES = new Set(['cancel', 'stop', 'reap', 'kill', 'run', 'watch'])

// The reader closed the pipe (`spawn-owned ps | head`), or the terminal is gone.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', () => {
    if (!FINISHES.has(process.argv[2] ?? '')) process.exit(0)
  })
}

main(process.argv.slice(2)).then(
  (outcome) => {
    process.exitCode = finalOutcome(outcome)
  },
  (error) => {
    process.exitCode = finalOutcome(explain(error))
  },
)
