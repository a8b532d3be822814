import { constants } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import type { OwnedProcess, RunExit, SpawnOwnedOptions } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { isDirectoryProblem, withFlags } from '../library-errors.js'

const [TIMED_OUT, NOT_OWNED, NOT_EXECUTABLE, NOT_FOUND] = [124, 125, 126, 127]
/** Errors of the system, not of the command. */
const TEMPORARY = new Set(['EAGAIN', 'EMFILE', 'ENFILE', 'ENOMEM'])
const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

export async function runCommand(context: Context): Promise<Outcome> {
  const { request, supervisor, say } = context
  const [command, ...args] = request.rest as [string, ...string[]]
  const options = optionsOf(context)
  let child: OwnedProcess | undefined
  // Before the start, so that no signal during the start is lost.
  const stopForwarding = forwardSignals(() => child, context)
  try {
    child = supervisor.spawnOwned(command, args, options)
  } catch (error) {
    stopForwarding()
    say(`spawn-owned: ${withFlags((error as Error).message)}`)
    return NOT_OWNED
  }
  const run = child
  const failure = new Promise<NodeJS.ErrnoException>((resolve) => run.on('error', resolve))
  const closed = new Promise((resolve) => run.once('close', resolve))
  const disconnect = options.stdio === 'inherit' ? () => {} : connect(run)
  const exit = await run.wait()
  // No process is left to forward signals to. A reader that hangs must not keep Ctrl-C from working.
  stopForwarding()
  // The last output can arrive after the exit.
  if (exit.reason !== 'spawn-error') await closed
  disconnect()
  return exit.reason === 'spawn-error' ? explain(context, await failure) : report(context, exit)
}

function optionsOf({ request }: Context): SpawnOwnedOptions {
  const { stdin, stdout } = process
  // A kept run outlives this process, but a terminal of this process does not.
  const atTerminal = stdin.isTTY && stdout.isTTY && !request.flag('keep')
  const pty = request.flag('pty') || (atTerminal && !request.flag('no-pty'))
  const [memoryBytes, processes] = [request.number('memory'), request.number('processes')]
  const noOutputTimeoutMs = request.number('no-output-timeout')
  // The time without output can only be measured on pipes that this process reads.
  const stdio = noOutputTimeoutMs ? ['inherit', 'pipe', 'pipe'] : 'inherit'
  const given: Partial<Record<keyof SpawnOwnedOptions, unknown>> = {
    timeoutMs: request.number('timeout'),
    noOutputTimeoutMs,
    graceMs: request.number('grace'),
    runId: request.text('run-id'),
    sessionId: request.text('session'),
    scopeKey: request.text('scope'),
    labels: request.labels(),
    cwd: request.text('cwd'),
    limits: memoryBytes === undefined && processes === undefined ? undefined : { memoryBytes, processes },
    replaceExistingScope: request.flag('replace') || undefined,
    onOwnerExit: request.flag('keep') ? 'keep' : undefined,
    pty: pty
      ? { cols: stdout.columns || 80, rows: stdout.rows || 24, name: process.env.TERM || undefined }
      : undefined,
    stdio: pty ? undefined : stdio,
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}

/** Forwards signals: the first goes to the whole tree, the second kills it. */
function forwardSignals(child: () => OwnedProcess | undefined, { say }: Context): () => void {
  let isSecond = false
  const forward = (signal: NodeJS.Signals) => {
    void child()?.cancel(isSecond ? { graceMs: 0 } : { signal })
    if (!isSecond && process.stderr.isTTY)
      say(`spawn-owned: sent ${signal} to the whole run; press Ctrl-C again to kill it`)
    isSecond = true
  }
  for (const signal of FORWARDED) process.on(signal, forward)
  return () => {
    for (const signal of FORWARDED) process.off(signal, forward)
  }
}

/**
 * Copies the output of the run to this process, and the input to its terminal, if it has one.
 *
 * Returns a function that ends that.
 */
function connect(child: OwnedProcess): () => void {
  const { stdin, stdout, stderr } = process
  copy(child.stdout, stdout)
  copy(child.stderr, stderr)
  if (!child.stdin) return () => {}
  const resize = () => {
    try {
      child.resize(stdout.columns, stdout.rows)
    } catch {
      // The run has ended meanwhile.
    }
  }
  if (stdin.isTTY) stdin.setRawMode(true)
  // Ignore input after the end of the run.
  child.stdin.on('error', () => {})
  stdin.pipe(child.stdin, { end: !stdin.isTTY })
  stdout.on('resize', resize)
  return () => {
    stdin.unpipe()
    stdin.pause()
    if (stdin.isTTY) stdin.setRawMode(false)
    stdout.off('resize', resize)
  }
}

/**
 * Copies an output. If the reader of this process is gone, the command gets EPIPE too.
 *
 * A command that was not started has no output.
 */
function copy(from: Readable | null, to: Writable): void {
  if (!from) return
  from.pipe(to, { end: false })
  to.once('error', () => from.destroy())
}

function explain({ say }: Context, { code, message }: NodeJS.ErrnoException): Outcome {
  say(`spawn-owned: ${withFlags(message)}`)
  if (isDirectoryProblem(message)) return NOT_OWNED
  if (code === 'ENOENT') return NOT_FOUND
  return TEMPORARY.has(code ?? '') ? NOT_OWNED : NOT_EXECUTABLE
}

function report({ request, json, say }: Context, exit: RunExit): Outcome {
  if (json) say(JSON.stringify(exit))
  for (const { pid, command, why } of exit.survivors)
    say(`spawn-owned: could not terminate process ${pid} (${command}): ${why}`)
  const needsSummary = request.flag('summary') || exit.timedOut || exit.noOutputTimedOut
  if (needsSummary && !json) say(`spawn-owned: ${exit.message}`)
  if (exit.survivors.length > 0) return 1
  if (exit.timedOut || exit.noOutputTimedOut) return TIMED_OUT
  return exit.exitCode ?? 128 + numberOf(exit.signal)
}

/** Returns the number of a signal. A real-time signal has its number as name. */
function numberOf(signal: NodeJS.Signals | null): number {
  return signal ? (constants.signals[signal] ?? Number(signal)) : 0
}
