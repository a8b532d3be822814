/**
 * Node's `child_process` with `spawn`, `fork`, `exec` and `execFile` owned: change the import, keep the code. `spawnSync`, `execSync` and
 * `execFileSync` are Node's own. Each function takes the options of a run besides Node's.
 *
 * @packageDocumentation
 */
import type {
  ExecException,
  ExecFileException,
  ExecFileOptions,
  ExecOptions,
  ForkOptions,
  SpawnOptions,
} from 'node:child_process'
import type { OwnedProcess, OwnedProcessWithStreams, SpawnOwnedOptions } from './index.js'

export * from 'node:child_process'
export { spawnOwned as spawn } from './index.js'

/** What ownership adds to Node's options, see {@link SpawnOwnedOptions}. A terminal is for `spawn` alone. */
export interface RunOptions extends Omit<SpawnOwnedOptions, keyof SpawnOptions | 'pty'> {}
export interface ForkOwnedOptions extends ForkOptions, RunOptions {}
export interface ExecOwnedOptions extends ExecOptions, RunOptions {}
export interface ExecFileOwnedOptions extends ExecFileOptions, RunOptions {}

/** What the promisified forms return. */
export interface PromiseWithOwned<T> extends Promise<T> {
  /** The process: `child.cancel()` ends its tree, `child.wait()` resolves when nothing of it exists. */
  child: OwnedProcessWithStreams
}

type Args = readonly string[] | null | undefined
type AsText<Options> = Options & { encoding?: BufferEncoding | undefined }
type AsBuffer<Options> = Options & { encoding: 'buffer' | null }
type Callback<Failure, Output> = (error: Failure | null, stdout: Output, stderr: Output) => void
type Promised<Output> = PromiseWithOwned<{ stdout: Output; stderr: Output }>

/** A Node process with a channel. It is owned like any other run; what it starts is in its tree. */
export function fork(modulePath: string | URL, args?: Args, options?: ForkOwnedOptions): OwnedProcess
export function fork(modulePath: string | URL, options?: ForkOwnedOptions): OwnedProcess

/**
 * Runs a command line in a shell, and calls back with what it wrote. At `timeout`, at more than `maxBuffer` and when `signal` is aborted the
 * whole tree is ended, not the shell alone.
 */
export function exec(command: string, callback?: Callback<ExecException, string>): OwnedProcessWithStreams
export function exec(
  command: string,
  options: AsBuffer<ExecOwnedOptions>,
  callback?: Callback<ExecException, Buffer>,
): OwnedProcessWithStreams
export function exec(
  command: string,
  options: AsText<ExecOwnedOptions>,
  callback?: Callback<ExecException, string>,
): OwnedProcessWithStreams
export function exec(
  command: string,
  options: ExecOwnedOptions | null | undefined,
  callback?: Callback<ExecException, string | Buffer>,
): OwnedProcessWithStreams
export namespace exec {
  function __promisify__(command: string): Promised<string>
  function __promisify__(command: string, options: AsBuffer<ExecOwnedOptions>): Promised<Buffer>
  function __promisify__(command: string, options: AsText<ExecOwnedOptions>): Promised<string>
  function __promisify__(
    command: string,
    options: ExecOwnedOptions | null | undefined,
  ): Promised<string | Buffer>
}

/** {@link exec} without a shell, unless one is asked for. */
export function execFile(
  file: string,
  callback?: Callback<ExecFileException, string>,
): OwnedProcessWithStreams
export function execFile(
  file: string,
  args: Args,
  callback?: Callback<ExecFileException, string>,
): OwnedProcessWithStreams
export function execFile(
  file: string,
  options: AsBuffer<ExecFileOwnedOptions>,
  callback?: Callback<ExecFileException, Buffer>,
): OwnedProcessWithStreams
export function execFile(
  file: string,
  args: Args,
  options: AsBuffer<ExecFileOwnedOptions>,
  callback?: Callback<ExecFileException, Buffer>,
): OwnedProcessWithStreams
export function execFile(
  file: string,
  options: AsText<ExecFileOwnedOptions>,
  callback?: Callback<ExecFileException, string>,
): OwnedProcessWithStreams
export function execFile(
  file: string,
  args: Args,
  options: AsText<ExecFileOwnedOptions>,
  callback?: Callback<ExecFileException, string>,
): OwnedProcessWithStreams
export function execFile(
  file: string,
  options: ExecFileOwnedOptions | null | undefined,
  callback?: Callback<ExecFileException, string | Buffer>,
): OwnedProcessWithStreams
export function execFile(
  file: string,
  args: Args,
  options: ExecFileOwnedOptions | null | undefined,
  callback?: Callback<ExecFileException, string | Buffer>,
): OwnedProcessWithStreams
export namespace execFile {
  function __promisify__(file: string, args?: Args): Promised<string>
  function __promisify__(file: string, options: AsBuffer<ExecFileOwnedOptions>): Promised<Buffer>
  function __promisify__(file: string, args: Args, options: AsBuffer<ExecFileOwnedOptions>): Promised<Buffer>
  function __promisify__(file: string, options: AsText<ExecFileOwnedOptions>): Promised<string>
  function __promisify__(file: string, args: Args, options: AsText<ExecFileOwnedOptions>): Promised<string>
  function __promisify__(
    file: string,
    args: Args,
    options: ExecFileOwnedOptions | null | undefined,
  ): Promised<string | Buffer>
}
