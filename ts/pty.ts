// The `pty` option: a terminal instead of pipes.

import type { SpawnOwnedOptions } from '../index.js'
import { checkObject, checkString } from './checks.js'
import { invalidType, invalidValue, outOfRange } from './errors.js'

export interface TerminalSettings {
  cols: number
  rows: number
  /** What TERM is to be; undefined: what the environment says, if the caller has given one, or the usual. */
  name: string | undefined
}

/** What a bot's own environment says of the bot's own terminal. The native side leaves the same out, where it is the one to read that. */
export const OF_ANOTHER_TERMINAL: ReadonlySet<string> = new Set(['TERM', 'TERMCAP', 'COLUMNS', 'LINES'])

/** What nearly everything that prints takes for granted. */
const USUAL = { cols: 80, rows: 24 }
/** The kernel has 16 bits for each. */
const MAX_SIZE = 65_535

/** Undefined if pipes will do. */
export function readTerminal(options: SpawnOwnedOptions): TerminalSettings | undefined {
  const { pty } = options
  if (pty === undefined || pty === false) return undefined
  if (pty !== true && (pty === null || typeof pty !== 'object' || Array.isArray(pty)))
    throw invalidType('options.pty', 'of type boolean or object', pty)
  const given: { cols?: unknown; rows?: unknown; name?: unknown } = pty === true ? {} : pty
  checkObject(given, 'options.pty')
  const { cols = USUAL.cols, rows = USUAL.rows, name } = given
  checkSize(cols, 'options.pty.cols')
  checkSize(rows, 'options.pty.rows')
  checkCompany(options)
  return { cols, rows, name: name === undefined ? undefined : terminalName(name) }
}

export function checkSize(value: unknown, name: string): asserts value is number {
  if (typeof value !== 'number') throw invalidType(name, 'of type number', value)
  if (!Number.isInteger(value) || value < 1 || value > MAX_SIZE)
    throw outOfRange(name, `an integer >= 1 && <= ${MAX_SIZE}`, value)
}

function terminalName(name: unknown): string {
  checkString(name, 'options.pty.name')
  if (name === '')
    throw invalidValue(
      'options.pty.name',
      name,
      'cannot be empty: give a name that terminfo knows, such as xterm-256color, or leave it out',
    )
  return name
}

/** Options that mean nothing beside a terminal, or the opposite of one. */
function checkCompany({ stdio, detached, onOwnerExit }: SpawnOwnedOptions): void {
  if (stdio != null && stdio !== 'pipe')
    throw invalidValue(
      'options.stdio',
      stdio,
      'cannot be combined with options.pty: the terminal is stdin, stdout and stderr of the command. Leave one of them out',
    )
  if (detached)
    throw invalidValue(
      'options.detached',
      detached,
      'cannot be combined with options.pty: a command with a terminal is not detached from it. Leave one of them out',
    )
  if (onOwnerExit === 'keep')
    throw invalidValue(
      'options.onOwnerExit',
      onOwnerExit,
      "cannot be 'keep' with options.pty: its terminal is gone with the bot. Leave one of them out, or run it in tmux or screen",
    )
}
