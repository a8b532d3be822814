// The context of a command: its request, its supervisor and its output.

import type * as Public from '../../index.js'
import type { Request } from './parse.js'
import { type Paint, painted, plain } from './text.js'

/** What a command gets. */
export interface Context {
  readonly request: Request
  /** The package itself, loaded at the first use: help and completions do not need it. */
  readonly owned: typeof Public
  /** The supervisor of the chosen registry. */
  readonly supervisor: Public.Supervisor
  /** The part of the registry that could not be read, to spread into `--json` output. */
  readonly problem: { registryProblem?: Public.RegistryProblem }
  readonly json: boolean
  /** How many characters fit in a line. Infinity if the output is no terminal. */
  readonly width: number
  readonly paint: Paint
  print(...lines: string[]): void
  printJson(value: unknown): void
  /** Prints a line to stderr: everything except the result. */
  say(line: string): void
}

/** The exit code. */
export type Outcome = number

type Environment = Readonly<Record<string, string | undefined>>

/**
 * Returns whether to use colours: NO_COLOR (https://no-color.org), FORCE_COLOR, then the terminal.
 */
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
