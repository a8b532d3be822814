/**
 * A drop-in for Node's `child_process`: change the import, keep the code.
 *
 * `spawn`, `fork`, `exec` and `execFile` start owned runs. They take the options of
 * {@link SpawnOwnedOptions} in addition to Node's. `spawnSync`, `execSync` and `execFileSync` are
 * Node's own functions.
 *
 * Descendants may outlive the command, as with Node's functions: the default of `onLeaderExit` is
 * `'keep'`, or the value of `SPAWN_OWNED_ON_LEADER_EXIT`. They end with a cancel, with a kill,
 * timeout or abort of the root process, and with the bot.
 *
 * Each function has the type of Node's function too, so code that compiles with Node's module
 * compiles with this one. A call returns an {@link OwnedProcess}. `ReturnType`, `Parameters` and
 * mocks use the last overload, which is Node's.
 *
 * @packageDocumentation
 */
import type * as node from 'node:child_process'
import type {
  ExecException,
  ExecFileException,
  ExecFileOptions,
  ExecOptions,
  ForkOptions,
  SpawnOptions,
} from 'node:child_process'
import type { OwnedProcess, OwnedProcessWithStreams, SpawnOwnedOptions, spawnOwned } from '../index.js'

export * from 'node:child_process'

/** Starts a command, as an owned run: {@link spawnOwned}. */
export const spawn: typeof spawnOwned & typeof node.spawn
/** Starts a Node process with an IPC channel, as an owned run. */
export const fork: ForkOwned & typeof node.fork
/** Runs a command line in a shell, as an owned run, and calls back with its output. */
export const exec: ExecOwned & typeof node.exec
/** As {@link exec}, but without a shell, unless the `shell` option is set. */
export const execFile: ExecFileOwned & typeof node.execFile

/**
 * The options of {@link SpawnOwnedOptions} that Node does not have. `pty` is only available for
 * `spawn`.
 */
export interface RunOptions extends Omit<SpawnOwnedOptions, keyof SpawnOptions | 'pty'> {}
/** Options of {@link fork}. */
export interface ForkOwnedOptions extends ForkOptions, RunOptions {}
/** Options of {@link exec}. */
export interface ExecOwnedOptions extends ExecOptions, RunOptions {}
/** Options of {@link execFile}. */
export interface ExecFileOwnedOptions extends ExecFileOptions, RunOptions {}

/** The result of `util.promisify(exec)` and `util.promisify(execFile)`. */
export interface PromiseWithOwned<T> extends Promise<T> {
  /**
   * The process. `child.cancel()` terminates its tree. `child.wait()` resolves when the tree is
   * gone.
   */
  child: OwnedProcessWithStreams
}

type Args = readonly string[] | null | undefined
type AsText<Options> = Options & { encoding?: BufferEncoding | undefined }
type AsBuffer<Options> = Options & { encoding: 'buffer' | null }
type Callback<Failure, Output> = (error: Failure | null, stdout: Output, stderr: Output) => void
type Promised<Output> = PromiseWithOwned<{ stdout: Output; stderr: Output }>

/** The type of {@link fork}, without Node's. */
export interface ForkOwned {
  /** Starts a Node process with an IPC channel, as an owned run. */
  (modulePath: string | URL, args?: Args, options?: ForkOwnedOptions): OwnedProcess
  (modulePath: string | URL, options?: ForkOwnedOptions): OwnedProcess
}

/** The type of {@link exec}, without Node's. */
export interface ExecOwned {
  /**
   * Runs a command line in a shell, and calls `callback` with its output.
   *
   * When `timeout` or `maxBuffer` is exceeded or `signal` is aborted, the whole tree is terminated.
   * Node signals only the shell.
   */
  (command: string, callback?: Callback<ExecException, string>): OwnedProcessWithStreams
  (
    command: string,
    options: AsBuffer<ExecOwnedOptions>,
    callback?: Callback<ExecException, Buffer>,
  ): OwnedProcessWithStreams
  (
    command: string,
    options: AsText<ExecOwnedOptions>,
    callback?: Callback<ExecException, string>,
  ): OwnedProcessWithStreams
  (
    command: string,
    options: ExecOwnedOptions | null | undefined,
    callback?: Callback<ExecException, string | Buffer>,
  ): OwnedProcessWithStreams
  /** The type of `util.promisify(exec)`. */
  __promisify__: {
    (command: string): Promised<string>
    (command: string, options: AsBuffer<ExecOwnedOptions>): Promised<Buffer>
    (command: string, options: AsText<ExecOwnedOptions>): Promised<string>
    (command: string, options: ExecOwnedOptions | null | undefined): Promised<string | Buffer>
  }
}

/** The type of {@link execFile}, without Node's. */
export interface ExecFileOwned {
  /**
   * Runs a program, and calls `callback` with its output.
   *
   * When `timeout` or `maxBuffer` is exceeded or `signal` is aborted, the whole tree is terminated.
   * Node signals only the program.
   */
  (file: string, callback?: Callback<ExecFileException, string>): OwnedProcessWithStreams
  (file: string, args: Args, callback?: Callback<ExecFileException, string>): OwnedProcessWithStreams
  (
    file: string,
    options: AsBuffer<ExecFileOwnedOptions>,
    callback?: Callback<ExecFileException, Buffer>,
  ): OwnedProcessWithStreams
  (
    file: string,
    args: Args,
    options: AsBuffer<ExecFileOwnedOptions>,
    callback?: Callback<ExecFileException, Buffer>,
  ): OwnedProcessWithStreams
  (
    file: string,
    options: AsText<ExecFileOwnedOptions>,
    callback?: Callback<ExecFileException, string>,
  ): OwnedProcessWithStreams
  (
    file: string,
    args: Args,
    options: AsText<ExecFileOwnedOptions>,
    callback?: Callback<ExecFileException, string>,
  ): OwnedProcessWithStreams
  (
    file: string,
    options: ExecFileOwnedOptions | null | undefined,
    callback?: Callback<ExecFileException, string | Buffer> | null,
  ): OwnedProcessWithStreams
  (
    file: string,
    args: Args,
    options: ExecFileOwnedOptions | null | undefined,
    callback?: Callback<ExecFileException, string | Buffer> | null,
  ): OwnedProcessWithStreams
  /** The type of `util.promisify(execFile)`. */
  __promisify__: {
    (file: string, args?: Args): Promised<string>
    (file: string, options: AsBuffer<ExecFileOwnedOptions>): Promised<Buffer>
    (file: string, args: Args, options: AsBuffer<ExecFileOwnedOptions>): Promised<Buffer>
    (file: string, options: AsText<ExecFileOwnedOptions>): Promised<string>
    (file: string, args: Args, options: AsText<ExecFileOwnedOptions>): Promised<string>
    (file: string, options: ExecFileOwnedOptions | null | undefined): Promised<string | Buffer>
    (file: string, args: Args, options: ExecFileOwnedOptions | null | undefined): Promised<string | Buffer>
  }
}
