// Parses a command line to a request, and checks all of it: a command that starts has no usage errors.

import { parseArgs } from 'node:util'
import { nearest } from '../util/spelling.js'
import { COMMANDS, type Command, type Option, optionsOf } from './command-spec.js'
import { readValue, type Value } from './values.js'

/** The command line is invalid. Nothing was touched. */
export class UsageError extends Error {
  readonly command: string | undefined

  constructor(message: string, command?: string) {
    super(message)
    this.command = command
  }
}

/** A parsed command line. */
export class Request {
  readonly command: Command
  /** The arguments that are no options. */
  readonly words: readonly string[]
  /** The command line to run, for commands that take one. */
  readonly rest: readonly string[]
  readonly #values: ReadonlyMap<string, Value>

  constructor(
    command: Command,
    values: ReadonlyMap<string, Value>,
    words: readonly string[],
    rest: readonly string[],
  ) {
    this.command = command
    this.#values = values
    this.words = words
    this.rest = rest
  }

  flag(name: string): boolean {
    return this.#values.get(name) === true
  }

  text(name: string): string | undefined {
    return this.#values.get(name) as string | undefined
  }

  texts(name: string): string[] {
    return (this.#values.get(name) as string[] | undefined) ?? []
  }

  /** Returns a duration in ms, a size in bytes, or a number. */
  number(name: string): number | undefined {
    return this.#values.get(name) as number | undefined
  }

  labels(): Record<string, string> | undefined {
    const given = this.texts('label')
    if (given.length === 0) return undefined
    return Object.fromEntries(
      given.map((label) => {
        const at = label.indexOf('=')
        return [label.slice(0, at), label.slice(at + 1)]
      }),
    )
  }

  /** Whether an argument or option is given: `RUN` or `--name`. */
  has(what: string): boolean {
    return what.startsWith('--') ? this.#values.has(what.slice(2)) : this.words.length > 0
  }

  error(message: string): UsageError {
    return new UsageError(message, this.command.name)
  }
}

export function parse(argv: readonly string[]): Request {
  const [name, ...others] = argv
  if (name === undefined) throw new UsageError('no command was given')
  const command = COMMANDS.find((command) => command.name === name)
  if (!command) {
    const names = COMMANDS.map(({ name }) => name)
    throw new UsageError(
      name === ''
        ? 'the command is empty'
        : name.startsWith('-')
          ? `the command must come before its options: spawn-owned COMMAND ${name}`
          : `unknown command "${name}"${suggestion(name, names)}`,
    )
  }
  return parseFor(command, others)
}

function parseFor(command: Command, argv: readonly string[]): Request {
  const options = optionsOf(command)
  const { tokens } = parseArgs({
    args: [...argv],
    strict: false,
    tokens: true,
    allowPositionals: true,
    options: Object.fromEntries(
      options.map(({ name, short, value }) => [
        name,
        { type: value ? ('string' as const) : ('boolean' as const), ...(short ? { short } : {}) },
      ]),
    ),
  })
  const values = new Map<string, Value>()
  const words: string[] = []
  let rest: readonly string[] = []
  for (const token of tokens) {
    if (token.kind === 'option') {
      take(command, options, values, token)
    } else if (token.kind === 'option-terminator') {
      rest = argv.slice(token.index + 1)
      break
    } else if (command.takesCommand) {
      rest = argv.slice(token.index)
      break
    } else {
      words.push(token.value)
    }
  }
  const request = new Request(command, values, words, rest)
  if (!request.flag('help')) {
    checkWords(request)
    checkCombinations(request)
  }
  return request
}

function take(
  command: Command,
  options: readonly Option[],
  values: Map<string, Value>,
  { name, rawName, value }: { name: string; rawName: string; value: string | undefined },
): void {
  const option = options.find((option) => option.name === name)
  const wrong = (message: string) => new UsageError(message, command.name)
  if (!option) {
    const names = options.map(({ name }) => `--${name}`)
    throw wrong(`"${command.name}" has no option ${rawName}${suggestion(rawName, names)}`)
  }
  if (!option.value) {
    if (value !== undefined) throw wrong(`${rawName} takes no value`)
    values.set(name, true)
    return
  }
  if (value === undefined || value === '') throw wrong(`${rawName} needs a value: ${rawName} ${option.value}`)
  if (!option.repeatable && values.has(name)) throw wrong(`${rawName} is given twice`)
  const read = readValue(option, value, wrong)
  const earlier = (values.get(name) as string[] | undefined) ?? []
  values.set(name, option.repeatable ? [...earlier, String(read)] : read)
}

function checkWords(request: Request): void {
  const { command, words, rest } = request
  const { name, usage, takesCommand } = command
  const [least, most] = command.words
  if (takesCommand ? rest.length === 0 : words.length < least)
    throw request.error(`an argument is missing. Usage: spawn-owned ${name} ${usage}`)
  if (!takesCommand && rest.length > 0) throw request.error(`"${name}" takes no arguments after --`)
  if (words.length > most) throw request.error(`unexpected argument "${words[most]}" of "${name}"`)
  // An empty RUN would be a prefix of every run id. It comes from an unset variable of a script.
  if (words.includes('') || rest[0] === '') throw request.error(`an argument of "${name}" is empty`)
}

function checkCombinations(request: Request): void {
  const { conflicts = [], requires = [], oneOf } = request.command
  for (const [one, other, why] of conflicts)
    if (request.has(one) && request.has(other))
      throw request.error(`${one} and ${other} cannot be combined${why ? `: ${why}` : '. Pass one of them'}`)
  for (const [option, needed] of requires)
    if (request.has(option) && !request.has(needed)) throw request.error(`${option} needs ${needed}`)
  if (oneOf && !oneOf.some((what) => request.has(what))) throw request.error(`${listed(oneOf)} is required`)
}

/** Returns `a, b or c`. */
const listed = (names: readonly string[]) => `${names.slice(0, -1).join(', ')} or ${names.at(-1)}`

/** Returns `; did you mean "x"?` if a name is similar. */
function suggestion(word: string, names: readonly string[]): string {
  const near = nearest(word, names)
  return near ? `; did you mean "${near}"?` : ''
}
