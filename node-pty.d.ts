/**
 * node-pty's `spawn` over an owned run: change the import, keep the code. What a terminal's command starts is ended with it, and
 * when the bot is gone. What differs from node-pty is in `docs/pty.md`.
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
import type { OwnedProcess, OwnershipOptions, SpawnOwnedOptions } from './index.js'

/**
 * Starts a command with a terminal.
 *
 * @param file default `sh`
 * @param args one string each; a command line is an error here, as it is in node-pty outside Windows
 * @throws if an option is invalid, and when `spawnOwned` does. A command that cannot be started says so in its terminal
 * and exits with 1.
 */
export function spawn(file?: string, args?: readonly string[] | string, options?: IPtyForkOptions): IPty
/** @deprecated Use {@link spawn}. */
export const fork: typeof spawn
/** @deprecated Use {@link spawn}. */
export const createTerminal: typeof spawn

/** What a run takes that makes sense beside node-pty's own. */
export interface IBasePtyForkOptions
  extends OwnershipOptions,
    Pick<SpawnOwnedOptions, 'onLeaderExit' | 'signal'> {
  /** `TERM`. Default: that of `env`, else `xterm`. */
  name?: string | undefined
  /** Width in characters, 1 to 65535. Default 80. */
  cols?: number | undefined
  /** Height in lines, 1 to 65535. Default 24. */
  rows?: number | undefined
  cwd?: string | undefined
  /** Default: `process.env`, without what it says of the bot's own terminal. */
  env?: { [key: string]: string | undefined } | undefined
  /** How data is decoded, and strings are encoded. `null`: data comes as `Buffer`. Default `utf8`. */
  encoding?: string | null | undefined
  /** Whether {@link IPty.write} takes the two strings below as orders to pause and resume. Default false. */
  handleFlowControl?: boolean | undefined
  /** Default XOFF, `'\x13'`. */
  flowControlPause?: string | undefined
  /** Default XON, `'\x11'`. */
  flowControlResume?: string | undefined
}

export interface IPtyForkOptions extends IBasePtyForkOptions {
  uid?: number | undefined
  gid?: number | undefined
}

/** A command with a terminal. */
export interface IPty {
  /** The run underneath: `cancel()`, `wait()`, `usage()` … Not in node-pty. */
  readonly run: OwnedProcess
  /** That of the command; `NaN` if it could not be started. */
  readonly pid: number
  readonly cols: number
  readonly rows: number
  /** The name of who is in the foreground of the terminal now; the command's, if that is not known. */
  readonly process: string
  handleFlowControl: boolean
  readonly onData: IEvent<string>
  /** When the tree is gone and all data was delivered. `signal` is 0 if it was none. */
  readonly onExit: IEvent<{ exitCode: number; signal?: number }>
  /** After the exit it does nothing. */
  resize(columns: number, rows: number): void
  /** Does nothing, as in node-pty outside Windows. */
  clear(): void
  /** Never blocks; what the command has not read yet waits. */
  write(data: string | Buffer): void
  /** Signals the command; when it exits, what it has started is ended too. Default SIGHUP. */
  kill(signal?: string): void
  /** Holds the command up, as soon as the buffers on the way are full. */
  pause(): void
  resume(): void
  /** As in older versions of node-pty. */
  on(event: 'data', listener: (data: string) => void): this
  on(event: 'exit', listener: (exitCode: number, signal: number) => void): this
  removeListener(event: 'data' | 'exit', listener: (...args: never[]) => void): this
}

export interface IDisposable {
  dispose(): void
}

/** Subscribes a listener. */
export type IEvent<T> = (listener: (e: T) => unknown) => IDisposable
