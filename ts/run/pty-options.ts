// The `pty` option, a terminal instead of pipes, and changes of its size.

import type { SpawnOwnedOptions } from '../../index.js'
import { codedError, invalidType, invalidValue, outOfRange } from '../util/errors.js'
import { PTY } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { checkString } from '../util/validation.js'
import type { LiveRun } from './live-run.js'

export interface TerminalSettings {
  cols: number
  rows: number
  /** The value of TERM. Undefined: the value of `options.env`, or a default. */
  name: string | undefined
}

/** The variables of the bot that describe the bot's terminal. The command must not inherit them. */
export const OF_ANOTHER_TERMINAL: ReadonlySet<string> = new Set(['TERM', 'TERMCAP', 'COLUMNS', 'LINES'])

/** The size that most programs assume. */
const USUAL = { cols: 80, rows: 24 }
/** The kernel stores each size in 16 bits. */
const MAX_SIZE = 65_535

/** Reads `options.pty`. Returns undefined for a run without terminal. */
export function readTerminal(options: SpawnOwnedOptions): TerminalSettings | undefined {
  const { pty } = options
  if (pty === undefined || pty === false) return undefined
  if (pty !== true && (pty === null || typeof pty !== 'object' || Array.isArray(pty)))
    throw invalidType('options.pty', 'of type boolean or object', pty)
  const given = readOptions(pty === true ? {} : pty, PTY, { of: 'spawnOwned', name: 'options.pty' })
  const { cols = USUAL.cols, rows = USUAL.rows, name } = given
  checkSize(cols, 'options.pty.cols')
  checkSize(rows, 'options.pty.rows')
  refuseConflicts(options)
  return { cols, rows, name: name === undefined ? undefined : terminalName(name) }
}

function checkSize(value: unknown, name: string): asserts value is number {
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
      'cannot be empty. Pass a name that terminfo knows, such as xterm-256color, or remove the option',
    )
  return name
}

/** Throws for options that contradict a terminal. */
function refuseConflicts({ stdio, detached, onOwnerExit }: SpawnOwnedOptions): void {
  if (stdio != null && stdio !== 'pipe')
    throw invalidValue(
      'options.stdio',
      stdio,
      'cannot be combined with options.pty: the terminal is stdin, stdout and stderr of the command. Remove one of them',
    )
  if (detached)
    throw invalidValue(
      'options.detached',
      detached,
      'cannot be combined with options.pty: a command with a terminal is not detached from it. Remove one of them',
    )
  if (onOwnerExit === 'keep')
    throw invalidValue(
      'options.onOwnerExit',
      onOwnerExit,
      "cannot be 'keep' with options.pty: the terminal is closed when the bot exits. Remove one of them, or use tmux or screen",
    )
}

/** Changes the size of a run's terminal, or the size that it gets when the run starts. */
export function resizeTerminal(run: LiveRun, cols: number, rows: number): void {
  checkSize(cols, 'cols')
  checkSize(rows, 'rows')
  const { runId, terminal } = run.settings
  if (!terminal) {
    throw codedError(
      Error,
      'ERR_OWNED_NO_TERMINAL',
      `Run "${runId}" has no terminal to resize. Start it with options.pty.`,
    )
  }
  if (run.isPostponed) Object.assign(terminal, { cols, rows })
  else if (run.hasRootExited || run.native?.resize(cols, rows) !== 0) {
    throw codedError(
      Error,
      'ERR_OWNED_TERMINAL_GONE',
      `The terminal of run "${runId}" cannot be resized, because it is closed. ` +
        "Resize it before 'exit', or check exitCode and signalCode first.",
    )
  }
}
