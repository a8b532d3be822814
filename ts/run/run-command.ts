// run: starts a command, captures its output, and resolves with its exit.

import { Readable, type Writable } from 'node:stream'
import type { RunOptions, RunResult, StartError } from '../../index.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { invalidType, invalidValue, outOfRange } from '../util/errors.js'
import { RUN_ONLY } from '../util/option-keys.js'
import { refuseMisspelled } from '../util/read-options.js'
import { freshId } from '../util/unique-id.js'
import { checkObject, ownOptions } from '../util/validation.js'
import { type CaptureLimits, OutputCapture } from './output-capture.js'
import type { OwnedProcess } from './owned-process.js'
import { describeFailedStart } from './run-exit.js'
import { spawn } from './spawn.js'

const DEFAULT_MAX_BYTES = 1024 * 1024

type Input = string | Uint8Array | Readable

/**
 * Runs a command. Throws for invalid arguments; every other failure is a result.
 *
 * `open` returns the context of the supervisor. It throws if the supervisor is closed.
 */
export function run(
  open: () => SupervisorContext,
  command: unknown,
  second?: unknown,
  third?: unknown,
): Promise<RunResult> {
  const [args, given] = Array.isArray(second) || second == null ? [second, third] : [undefined, second]
  if (given !== undefined) checkObject(given, 'options')
  const options = ownOptions<RunOptions>(given)
  refuseMisspelled(options, 'run', RUN_ONLY)
  const limits = {
    bytes: atLeastZero(options.maxOutputBytes, 'options.maxOutputBytes') ?? DEFAULT_MAX_BYTES,
    lines: atLeastZero(options.maxOutputLines, 'options.maxOutputLines') ?? Number.POSITIVE_INFINITY,
  }
  const input = readInput(options)
  // Without input, the command must not wait for it.
  if (input === undefined && options.stdio == null && !options.pty) options.stdio = ['ignore', 'pipe', 'pipe']
  // `end` types Ctrl-D into a terminal. A command that reads no input does not expect it.
  const closesStdin = input !== undefined || !options.pty
  try {
    return finish(spawn(open(), command, args, options), input, closesStdin, limits)
  } catch (error) {
    return failedRun(error, options.runId)
  }
}

/** Returns the result of a run that could not be started. Throws an error about the arguments. */
export function failedRun(error: unknown, runId: unknown): Promise<RunResult> {
  if (!(error instanceof Error) || error instanceof TypeError || error instanceof RangeError) throw error
  const exit = describeFailedStart(typeof runId === 'string' ? runId : freshId(), error)
  return Promise.resolve({ ...exit, stdout: '', stderr: '', truncated: false })
}

async function finish(
  child: OwnedProcess,
  input: Input | undefined,
  closesStdin: boolean,
  limits: CaptureLimits,
): Promise<RunResult> {
  const [stdout, stderr] = [new OutputCapture(limits), new OutputCapture(limits)]
  // The command must not block on any pipe, so read the others too.
  const [stdin, out, err, ...others] = child.stdio ?? []
  for (const [stream, capture] of [[out, stdout] as const, [err, stderr] as const])
    stream?.on('error', ignore).on('data', (chunk: Buffer) => capture.add(chunk))
  for (const stream of others) stream?.on('error', ignore).resume()
  const closed = new Promise((resolve) => child.once('close', resolve))
  const failure: { error?: StartError } = {}
  if (stdin && closesStdin)
    feed(stdin, input, (error) => {
      failure.error ??= { code: 'ERR_OWNED_INPUT', message: `options.input failed: ${error.message}` }
      void child.cancel()
    })
  const exit = await child.wait()
  await closed
  const [first, second] = [stdout.result(), stderr.result()]
  return {
    ...exit,
    ...(failure.error && { ok: false, error: failure.error, message: failure.error.message }),
    stdout: first.text,
    stderr: second.text,
    truncated: first.truncated || second.truncated,
  }
}

/**
 * Writes the input and closes stdin.
 *
 * A command may exit before it has read all input: that is no error. If the caller's stream fails,
 * `onFailure` must end the run, because the command cannot know that its input is incomplete.
 */
function feed(stdin: Writable, input: Input | undefined, onFailure: (error: Error) => void): void {
  stdin.on('error', ignore)
  if (!(input instanceof Readable)) {
    stdin.end(input)
    return
  }
  // A stream that is destroyed already emits neither `end` nor `close`, and `pipe` would wait.
  if (input.destroyed && !input.readableEnded) {
    onFailure(input.errored ?? new Error('it was destroyed'))
    return
  }
  let isOver = false
  // After the end of the command, this listener still ignores errors of the destroyed stream.
  input.on('error', (error) => {
    if (!isOver) onFailure(error)
  })
  // A stream that is destroyed without an error does not end either.
  input.once('close', () => {
    if (!isOver && !input.readableEnded) onFailure(input.errored ?? new Error('it was destroyed'))
  })
  stdin.once('close', () => {
    isOver = true
    input.destroy()
  })
  input.pipe(stdin)
}

function ignore(): void {}

function readInput({ input, stdio }: RunOptions): Input | undefined {
  if (input === undefined) return undefined
  if (typeof input !== 'string' && !(input instanceof Uint8Array) && !(input instanceof Readable))
    throw invalidType('options.input', 'of type string or an instance of Uint8Array or Readable', input)
  const form: unknown = Array.isArray(stdio) ? stdio[0] : stdio
  if (form != null && form !== 'pipe' && form !== 'overlapped')
    throw invalidValue('options.input', input, "needs stdin as a pipe. Set options.stdio[0] to 'pipe'")
  return input
}

function atLeastZero(value: unknown, name: string): number | undefined {
  if (value === undefined) return undefined
  if (typeof value !== 'number') throw invalidType(name, 'of type number', value)
  if (!(value >= 0)) throw outOfRange(name, '>= 0', value)
  return Math.trunc(value)
}
