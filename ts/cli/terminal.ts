// Where the command line speaks to: what it can show there.

import type * as Public from '../../index.js'
import type { Request } from './parse.js'
import { type Paint, painted, plain } from './text.js'

/** What a command gets to do its work. */
export interface Context {
  readonly request: Request
  /** The package itself, loaded when it is first asked for: help and completions need none of it. */
  readonly owned: typeof Public
  /** On the registry that was asked for. */
  readonly supervisor: Public.Supervisor
  readonly json: boolean
  /** How many characters fit in a line; no limit where nobody looks. */
  readonly width: number
  readonly paint: Paint
  print(...lines: string[]): void
  printJson(value: unknown): void
  /** On stderr: what is not the answer. */
  say(line: string): void
}

/** The exit code. */
export type Outcome = number

type Environment = Readonly<Record<string, string | undefined>>

/** NO_COLOR (https://no-color.org) and FORCE_COLOR have the last word, then whether somebody looks. */
export function paintFor(env: Environment, isTerminal: boolean): Paint {
  if (env.NO_COLOR) return plain
  if (env.FORCE_COLOR) return env.FORCE_COLOR === '0' ? plain : painted
  return isTerminal && env.TERM !== 'dumb' ? painted : plain
}

export function widthFor(stream: { isTTY?: boolean; columns?: number }, env: Environment): number {
  const given = Number(env.COLUMNS)
  if (!stream.isTTY) return Number.POSITIVE_INFINITY
  return stream.columns || (given > 0 ? given : 80)
}
