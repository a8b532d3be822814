// Parses a command line to a request. Pure.

import { parseArgs } from 'node:util'
import { nearest } from '../util/spelling.js'
import { COMMANDS, COMMON, type Command, type Option } from './command-spec.js'
import { parseDuration, parseSize } from './units.js'

/** The command line is invalid. Nothing was touched. */
export class UsageError extends Error {
  readonly command: string | undefined

  constructor(message: string, command?: string) {
    super(message)
    this.command = command
  }
}

export type Value = string | boolean | number | string[] | undefined

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
        if (at < 1) throw this.error(`--label must be KEY=VALUE, got "${label}"`)
        return [label.slice(0, at), label.slice(at + 1)]
      }),
    )
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
      name.startsWith('-')
        ? `the command must come before its options: spawn-owned COMMAND ${name}`
        : `unknown command "${name}"${suggestion(name, names)}`,
    )
  }
  return parseFor(command, others)
}

function parseFor(command: Command, argv: readonly string[]): Request {
  const options = [...command.options, ...COMMON]
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
  if (!request.flag('help')) checkWords(request)
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
  if (option.repeatable) values.set(name, [...((values.get(name) as string[]) ?? []), value])
  else if (values.has(name)) throw wrong(`${rawName} is given twice`)
  else values.set(name, converted(option, value, wrong))
}

function converted({ name, value: kind }: Option, text: string, wrong: (message: string) => Error): Value {
  switch (kind) {
    case 'DURATION': {
      const ms = parseDuration(text)
      if (ms === undefined)
        throw wrong(`--${name} must be a duration such as 90s, 5m or 250ms, got "${text}"`)
      return ms
    }
    case 'SIZE': {
      const bytes = parseSize(text)
      if (bytes === undefined) throw wrong(`--${name} must be a size such as 512M or 2G, got "${text}"`)
      return bytes
    }
    case 'NUMBER':
      if (!/^\d{1,9}$/.test(text))
        throw wrong(`--${name} must be a number with at most 9 digits, got "${text}"`)
      return Number(text)
    default:
      return text
  }
}

function checkWords(request: Request): void {
  const { command, words, rest } = request
  const [least, most] = command.words
  if (command.takesCommand ? rest.length === 0 : words.length < least)
    throw request.error(`"${command.name}" needs ${command.usage}`)
  if (!command.takesCommand && rest.length > 0)
    throw request.error(`"${command.name}" takes no arguments after --`)
  if (words.length > most) throw request.error(`unexpected argument "${words[most]}" of "${command.name}"`)
}

/** Returns `; did you mean "x"?` if a name is similar. */
function suggestion(word: string, names: readonly string[]): string {
  const near = nearest(word, names)
  return near ? `; did you mean "${near}"?` : ''
}
