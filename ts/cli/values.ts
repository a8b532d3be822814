// Reads the values of options. The placeholder of an option in the help is the kind of its value.

import { realpathSync, statSync } from 'node:fs'
import { parse, resolve } from 'node:path'
import { signalName, signalNumber } from '../util/signals.js'
import { isRunId, RUN_ID_RULE } from '../util/validation.js'
import type { Option } from './command-spec.js'
import { formatBytes, formatDuration, parseDuration, parseSize } from './units.js'

export type Value = string | boolean | number | string[] | undefined

interface Kind {
  /** Completes the sentence "--option must be …". */
  readonly rule: string
  /** Returns undefined for an invalid value. */
  read(text: string): string | number | undefined
  /** Formats a limit of the option. */
  format?(value: number): string
}

const KINDS: Readonly<Record<string, Kind>> = {
  DURATION: {
    rule: 'a duration such as 90s, 5m or 250ms',
    read: parseDuration,
    format: formatDuration,
  },
  SIZE: { rule: 'a size such as 512M or 2G', read: parseSize, format: formatBytes },
  NUMBER: {
    rule: 'a whole number',
    read: (text) => (/^\d+$/.test(text) ? Number(text) : undefined),
    format: String,
  },
  SIGNAL: { rule: 'a signal such as SIGTERM, term or 15', read: readSignal },
  RUN: { rule: RUN_ID_RULE, read: (text) => (isRunId(text) ? text : undefined) },
  'KEY=VALUE': { rule: 'KEY=VALUE', read: (text) => (text.indexOf('=') > 0 ? text : undefined) },
  NAME: {
    rule: 'a name with a character other than "*"',
    read: (text) => (text.replaceAll('*', '') === '' ? undefined : text),
  },
  DIR: { rule: 'a directory that exists', read: (text) => (isDirectory(text) ? text : undefined) },
  PROJECT: {
    rule: 'a directory that exists, and not the root of the file system',
    read: (text) => (isDirectory(text) && !isRoot(text) ? text : undefined),
  },
}

/** Returns the value of an option. Throws what `wrong` returns for an invalid one. */
export function readValue(option: Option, text: string, wrong: (message: string) => Error): string | number {
  const kind = KINDS[option.kind ?? option.value ?? '']
  if (!kind) return text
  const value = kind.read(text)
  const got = `got "${text}"`
  if (value === undefined) throw wrong(`--${option.name} must be ${kind.rule}, ${got}`)
  if (typeof value !== 'number' || !kind.format) return value
  const { least = 0, most = Number.MAX_SAFE_INTEGER } = option
  if (value < least) throw wrong(`--${option.name} must be at least ${kind.format(least)}, ${got}`)
  if (value > most) throw wrong(`--${option.name} must be at most ${kind.format(most)}, ${got}`)
  return value
}

/** Returns the name of a signal. Accepts it without `SIG`, in lower case, and its number. */
function readSignal(text: string): string | undefined {
  for (const signal of [/^\d+$/.test(text) ? Number(text) : text, `SIG${text}`]) {
    try {
      return signalName(signalNumber(signal))
    } catch {
      // Try the next spelling.
    }
  }
  return undefined
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}

function isRoot(path: string): boolean {
  const real = realpathSync(resolve(path))
  return real === parse(real).root
}
