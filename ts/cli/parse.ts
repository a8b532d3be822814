// From words to a request. Pure.

import { parseArgs } from 'node:util'
import { parseDuration, parseSize } from './durations.js'
import { COMMANDS, COMMON, type Command, type Option } from './spec.js'

/** What was asked cannot be understood. Nothing was touched. */
export class UsageError extends Error {
  readonly command: string | undefined

  constructor(message: string, command?: string) {
    super(message)
    this.command = command
  }
}

export type Value = string | boolean | number | string[] | undefined

/** A command line that was understood. */
export class Request {
  readonly command: Command
  /** Words that are no options. */
  readonly words: readonly string[]
  /** Somebody else's command line. */
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

  /** A duration in ms, a size in bytes, or a plain number. */
  number(name: string): number | undefined {
    return this.#values.get(name) as number | undefined
  }

  labels(): Record<string, string> | undefined {
    const given = this.texts('label')
    if (given.length === 0) return undefined
    return Object.fromEntries(
      given.map((label) => {
        const at = label.indexOf('=')
        if (at < 1) throw this.error(`--label wants KEY=VALUE, not "${label}"`)
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
  if (name === undefined) throw new UsageError('a command is missing')
  const command = COMMANDS.find((command) => command.name === name)
  if (!command) {
    const names = COMMANDS.map(({ name }) => name)
    throw new UsageError(
      name.startsWith('-')
        ? `the command comes before its options: spawn-owned COMMAND ${name}`
        : `there is no command "${name}"${meant(name, names)}`,
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
    throw wrong(`"${command.name}" has no option ${rawName}${meant(rawName, names)}`)
  }
  if (!option.value) {
    if (value !== undefined) throw wrong(`${rawName} takes no value`)
    values.set(name, true)
    return
  }
  if (value === undefined || value === '') throw wrong(`${rawName} wants a value: ${rawName} ${option.value}`)
  if (option.repeatable) values.set(name, [...((values.get(name) as string[]) ?? []), value])
  else if (values.has(name)) throw wrong(`${rawName} is given twice`)
  else values.set(name, converted(option, value, wrong))
}

function converted({ name, value: kind }: Option, text: string, wrong: (message: string) => Error): Value {
  switch (kind) {
    case 'DURATION': {
      const ms = parseDuration(text)
      if (ms === undefined) throw wrong(`--${name} wants a duration such as 90s, 5m or 250ms, not "${text}"`)
      return ms
    }
    case 'SIZE': {
      const bytes = parseSize(text)
      if (bytes === undefined) throw wrong(`--${name} wants a size such as 512M or 2G, not "${text}"`)
      return bytes
    }
    case 'NUMBER':
      if (!/^\d{1,9}$/.test(text)) throw wrong(`--${name} wants a number, not "${text}"`)
      return Number(text)
    default:
      return text
  }
}

function checkWords(request: Request): void {
  const { command, words, rest } = request
  const [least, most] = command.words
  if (command.takesCommand ? rest.length === 0 : words.length < least)
    throw request.error(`"${command.name}" wants ${command.usage}`)
  if (!command.takesCommand && rest.length > 0)
    throw request.error(`"${command.name}" takes nothing after --`)
  if (words.length > most) throw request.error(`"${words[most]}" is one word too many for "${command.name}"`)
}

/** `, did you mean "x"?` if one of them is near. */
function meant(word: string, names: readonly string[]): string {
  const near = names.find((name) => name.startsWith(word)) ?? names.find((name) => distance(word, name) <= 2)
  return near ? `; did you mean "${near}"?` : ''
}

/** How many letters differ (Levenshtein). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(change, (row[j] as number) + 1, (next[j - 1] as number) + 1))
    }
    row = next
  }
  return row[b.length] as number
}
