/**
 * A drop-in for `node-pty` with owned runs: change the import, keep the code.
 *
 * All processes that the command starts are terminated with it, and when the bot is gone.
 * `docs/pty.md` lists the differences from node-pty.
 *
 * @example
 * ```ts
 * import * as pty from 'spawn-owned/node-pty'
 *
 * const shell = pty.spawn('bash', [], { name: 'xterm-256color', cols: 120, rows: 40 })
 * shell.onData((data) => process.stdout.write(data))
 * shell.write('ls\r')
 * ```
 *
 * @packageDocumentation
 */
import type { OwnedProcess, OwnershipOptions, SpawnOwnedOptions } from '../index.js'

/**
 * Starts a command in a terminal.
 *
 * @param file - The command. Default `sh`.
 * @param args - One string for each argument. A single string with a command line is an error, as
 * in node-pty on Linux and macOS.
 * @throws If an option is invalid, and the errors of `spawnOwned`. If the command cannot be
 * started, the terminal shows the error, and the exit code is 1.
 */
export function spawn(file?: string, args?: readonly string[] | string, options?: IPtyForkOptions): IPty
/** @deprecated Use {@link spawn}. */
export const fork: typeof spawn
/** @deprecated Use {@link spawn}. */
export const createTerminal: typeof spawn

/** The options of node-pty, and the options of ownership that apply to a terminal. */
export interface IBasePtyForkOptions
  extends OwnershipOptions,
    Pick<SpawnOwnedOptions, 'onLeaderExit' | 'signal'> {
  /** The value of `TERM`. Default: `TERM` of `env`, else `xterm`. */
  name?: string | undefined
  /** Width in characters, 1 to 65535. Default 80. */
  cols?: number | undefined
  /** Height in lines, 1 to 65535. Default 24. */
  rows?: number | undefined
  cwd?: string | undefined
  /**
   * The environment. Default: `process.env` without the variables that describe the bot's terminal.
   */
  env?: { [key: string]: string | undefined } | undefined
  /** The encoding of data in both directions. `null`: data arrives as `Buffer`. Default `utf8`. */
  encoding?: string | null | undefined
  /** Whether {@link IPty.write} pauses and resumes on the two strings below. Default false. */
  handleFlowControl?: boolean | undefined
  /** The string that pauses. Default XOFF, `'\x13'`. */
  flowControlPause?: string | undefined
  /** The string that resumes. Default XON, `'\x11'`. */
  flowControlResume?: string | undefined
}

/** Options of {@link spawn}. */
export interface IPtyForkOptions extends IBasePtyForkOptions {
  uid?: number | undefined
  gid?: number | undefined
}

/** A command in a terminal. */
export interface IPty {
  /** The run of the command: `cancel()`, `wait()`, `usage()` … node-pty does not have it. */
  readonly run: OwnedProcess
  /** The PID of the command. `NaN` if it could not be started. */
  readonly pid: number
  readonly cols: number
  readonly rows: number
  /** The name of the foreground process of the terminal. If that is not known: of the command. */
  readonly process: string
  handleFlowControl: boolean
  /** Emitted with each piece of output. */
  readonly onData: IEvent<string>
  /**
   * Emitted when the tree is gone and all data was delivered. `signal` is 0 if no signal killed it.
   */
  readonly onExit: IEvent<{ exitCode: number; signal?: number }>
  /** Changes the size of the terminal. No effect after the exit. */
  resize(columns: number, rows: number): void
  /** No effect, as in node-pty on Linux and macOS. */
  clear(): void
  /** Writes to the terminal. Never blocks: data waits until the command reads it. */
  write(data: string | Buffer): void
  /** Signals the command. When it exits, its descendants are terminated too. Default SIGHUP. */
  kill(signal?: string): void
  /** Stops reading. The command blocks once the buffers are full. */
  pause(): void
  /** Reads again after {@link IPty.pause}. */
  resume(): void
  /** The events of older versions of node-pty. */
  on(event: 'data', listener: (data: string) => void): this
  on(event: 'exit', listener: (exitCode: number, signal: number) => void): this
  removeListener(event: 'data' | 'exit', listener: (...args: never[]) => void): this
}

/** The result of a subscription. */
export interface IDisposable {
  /** Removes the listener. */
  dispose(): void
}

/** Adds a listener for an event. */
export type IEvent<T> = (listener: (e: T) => unknown) => IDisposable
