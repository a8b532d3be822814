import { constants } from 'node:os'
import type { OwnedProcess, RunExit, SpawnOwnedOptions } from '../../../index.js'
import type { Context, Outcome } from '../terminal.js'

const [TIMED_OUT, NOT_OWNED, NOT_EXECUTABLE, NOT_FOUND] = [124, 125, 126, 127]
/** It is not the command's fault. */
const PASSING = new Set(['EAGAIN', 'EMFILE', 'ENFILE', 'ENOMEM'])
const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

export async function runCommand(context: Context): Promise<Outcome> {
  const { request, supervisor, say } = context
  const [command, ...args] = request.rest as [string, ...string[]]
  const options = optionsOf(context)
  let child: OwnedProcess | undefined
  // Before it is started: what comes while it is waits until that is done.
  const stopForwarding = forwardSignals(() => child, context)
  try {
    child = supervisor.spawnOwned(command, args, options)
  } catch (error) {
    stopForwarding()
    say(`spawn-owned: ${(error as Error).message}`)
    return NOT_OWNED
  }
  const run = child
  const failure = new Promise<NodeJS.ErrnoException>((resolve) => run.on('error', resolve))
  const closed = new Promise((resolve) => run.once('close', resolve))
  const letGo = options.pty ? connect(run) : () => {}
  const exit = await run.wait()
  // What it has said last may still be on its way.
  if (options.pty && exit.reason !== 'spawn-error') await closed
  letGo()
  stopForwarding()
  return exit.reason === 'spawn-error' ? explain(context, await failure) : report(context, exit)
}

function optionsOf({ request }: Context): SpawnOwnedOptions {
  const { stdin, stdout } = process
  if (request.flag('pty') && request.flag('no-pty'))
    throw request.error('--pty and --no-pty: give one of them')
  // What is kept outlives us, and a terminal of ours does not.
  const atTerminal = stdin.isTTY && stdout.isTTY && !request.flag('keep')
  const pty = request.flag('pty') || (atTerminal && !request.flag('no-pty'))
  const [memoryBytes, processes] = [request.number('memory'), request.number('processes')]
  const given: Partial<Record<keyof SpawnOwnedOptions, unknown>> = {
    timeoutMs: request.number('timeout'),
    noOutputTimeoutMs: request.number('no-output-timeout'),
    graceMs: request.number('grace'),
    runId: request.text('run-id'),
    sessionId: request.text('session'),
    scopeKey: request.text('scope'),
    labels: request.labels(),
    cwd: request.text('cwd'),
    limits: memoryBytes === undefined && processes === undefined ? undefined : { memoryBytes, processes },
    replaceExistingScope: request.flag('replace') || undefined,
    onOwnerExit: request.flag('keep') ? 'keep' : undefined,
    pty: pty ? { cols: stdout.columns || 80, rows: stdout.rows || 24, name: process.env.TERM } : undefined,
    stdio: pty ? undefined : 'inherit',
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}

/** The first one asks the whole tree, in its own words; the second one does not ask. */
function forwardSignals(child: () => OwnedProcess | undefined, { say }: Context): () => void {
  let asked = false
  const forward = (signal: NodeJS.Signals) => {
    void child()?.cancel(asked ? { graceMs: 0 } : { signal })
    if (!asked && process.stderr.isTTY) say('spawn-owned: asked it to end; once more, and it is killed')
    asked = true
  }
  for (const signal of FORWARDED) process.on(signal, forward)
  return () => {
    for (const signal of FORWARDED) process.off(signal, forward)
  }
}

/** Our terminal and its own become one. */
function connect(child: OwnedProcess): () => void {
  const { stdin, stdout } = process
  const resize = () => {
    try {
      child.resize(stdout.columns, stdout.rows)
    } catch {
      // It has ended meanwhile.
    }
  }
  // Without them nothing was started, which is told elsewhere.
  if (!child.stdin || !child.stdout) return () => {}
  if (stdin.isTTY) stdin.setRawMode(true)
  // What is typed when it has ended is for nobody.
  child.stdin.on('error', () => {})
  stdin.pipe(child.stdin, { end: !stdin.isTTY })
  child.stdout.pipe(stdout, { end: false })
  stdout.on('resize', resize)
  return () => {
    stdin.unpipe()
    stdin.pause()
    if (stdin.isTTY) stdin.setRawMode(false)
    stdout.off('resize', resize)
  }
}

function explain({ say }: Context, { code, message }: NodeJS.ErrnoException): Outcome {
  say(`spawn-owned: ${message}`)
  if (code === 'ENOENT') return NOT_FOUND
  return PASSING.has(code ?? '') ? NOT_OWNED : NOT_EXECUTABLE
}

function report({ request, json, say }: Context, exit: RunExit): Outcome {
  if (json) say(JSON.stringify(exit))
  for (const { pid, command, why } of exit.survivors)
    say(`spawn-owned: could not end ${pid} ${command}: ${why}`)
  const isTold = request.flag('summary') || exit.timedOut || exit.noOutputTimedOut
  if (isTold && !json) say(`spawn-owned: ${exit.message}`)
  if (exit.survivors.length > 0) return 1
  if (exit.timedOut || exit.noOutputTimedOut) return TIMED_OUT
  return exit.exitCode ?? 128 + numberOf(exit.signal)
}

/** Real-time signals have no names, and are told by their number. */
function numberOf(signal: NodeJS.Signals | null): number {
  return signal ? (constants.signals[signal] ?? Number(signal)) : 0
}
