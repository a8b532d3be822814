// spawnOwned: reads the arguments, starts the run, and returns the process.

import { channel as diagnosticsChannel, tracingChannel } from 'node:diagnostics_channel'
import { constants } from 'node:os'
import { begin, closeStream, keeperPath, type NativeRegistry, openStreams } from '../native/addon.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { codedError, errnoError, invalidValue } from '../util/errors.js'
import { nodeSpawn } from '../util/original-child-process.js'
import { refuseChannelsOutsideNode } from '../util/runtimes.js'
import { nameBadDirectory } from './bad-directory.js'
import type { BorrowedChannel, BorrowedStream } from './ipc.js'
import { LiveRun } from './live-run.js'
import type { OwnedProcess } from './owned-process.js'
import { withDefaults } from './run-defaults.js'
import { startIfEmpty, startInTurn } from './scopes.js'
import { type RunSettings, readArguments } from './spawn-options.js'
import { handOver, hasOutput, type Pipes, planStdio, planTerminal, type StdioPlan } from './stdio.js'

const created = diagnosticsChannel('child_process')
const spawning = tracingChannel('child_process.spawn')

/** The errors of a start that are emitted as `error` instead of thrown, as in Node. */
const EMITTED = new Set(['EACCES', 'EAGAIN', 'EMFILE', 'ENFILE', 'ENOENT'])

export function spawn(
  context: SupervisorContext,
  command: unknown,
  args?: unknown,
  options?: unknown,
  service?: string,
): OwnedProcess {
  // A service has its own rules, which it always passes.
  const given = withDefaults(service === undefined ? context.defaults : undefined, args, options)
  const settings = readArguments(command, given.args, given.options, context.graceMs)
  if (service !== undefined) settings.service = service
  context.refuseWhileClosing()
  if (context.runs.isLive(settings.runId)) {
    throw codedError(
      Error,
      'ERR_OWNED_DUPLICATE_RUN',
      `options.runId "${settings.runId}" names a run that is alive. Cancel it first, or choose another id.`,
    )
  }
  const plan = settings.terminal ? planTerminal() : planStdio(settings.stdio)
  if (settings.idleTimeoutMs > 0 && !hasOutput(plan)) {
    if (given.hasDefaultIdleTimeout) settings.idleTimeoutMs = 0
    else throw idleTimeoutWithoutOutput(settings.idleTimeoutMs)
  }
  const run = new LiveRun(settings, context)
  const { process: child } = run
  if (created.hasSubscribers) created.publish({ process: child })
  if (spawning.hasSubscribers) spawning.start.publish({ process: child, options: settings })
  try {
    const borrowed = borrow(settings, plan)
    const start = () => startNow(context, run, plan, borrowed)
    if (!settings.replaceScope) start()
    else if (!startIfEmpty(context, settings.scopeKey as string, start))
      startLater(context, run, plan, borrowed)
  } catch (error) {
    if (spawning.hasSubscribers) spawning.error.publish({ process: child, error })
    throw error
  }
  return child
}

function idleTimeoutWithoutOutput(value: number): Error {
  return invalidValue(
    'options.noOutputTimeoutMs',
    value,
    "needs an output that the bot reads. Set stdout or stderr to 'pipe' in options.stdio, or remove this option",
  )
}

/** What only Node can pass to the command: the IPC channel, and some sockets. */
interface Borrowed {
  readonly channel: BorrowedChannel | undefined
  /** Closes the bot's copies. Call it when the command has its own, or was not started. */
  release(): void
}

const NOTHING: Borrowed = { channel: undefined, release() {} }

function borrow(settings: RunSettings, plan: StdioPlan): Borrowed {
  if (plan.ipc === undefined && plan.unknown.length === 0) return NOTHING
  const streams: BorrowedStream[] = []
  const release = () => {
    for (const stream of streams) stream.release()
  }
  try {
    for (const { at, socket } of plan.unknown) {
      const stream = ipc().borrowSocket(nodeSpawn, keeperPath, socket)
      streams.push(stream)
      plan.slots[at] = stream.slot
    }
    const channel = openChannel(settings, plan)
    if (channel) streams.push(channel)
    return { channel, release }
  } catch (error) {
    release()
    throw error
  }
}

function openChannel(settings: RunSettings, plan: StdioPlan): BorrowedChannel | undefined {
  if (plan.ipc === undefined) return undefined
  refuseChannelsOutsideNode()
  const channel = ipc().borrowChannel(nodeSpawn, keeperPath, settings.serialization)
  plan.slots[plan.ipc] = channel.slot
  settings.env += `NODE_CHANNEL_FD=${plan.ipc}\0NODE_CHANNEL_SERIALIZATION_MODE=${settings.serialization}\0`
  return channel
}

/** Starts the command now. Throws if that fails, except for the errors that Node emits. */
function startNow(
  context: SupervisorContext,
  run: LiveRun,
  plan: StdioPlan,
  { channel, release }: Borrowed,
): void {
  const { process: child, settings } = run
  try {
    const errno = tryToStart(context, run, plan.slots, [], channel)
    if (errno === 0) {
      handOver(plan.lent, child.end)
      if (spawning.hasSubscribers) spawning.end.publish({ process: child })
      return
    }
    const error = errnoError(errno, 'spawn')
    if (!EMITTED.has(error.code ?? '')) {
      nameBadDirectory(error, settings)
      throw error
    }
    if (spawning.hasSubscribers) spawning.error.publish({ process: child, error })
    run.failed(errno, channel)
  } catch (error) {
    channel?.channel.disconnect()
    throw error
  } finally {
    // If the command was not started, this disconnects Node's end of the channel.
    release()
  }
}

/**
 * Prepares a process in state `starting`, and starts its command when the earlier runs of the scope
 * are gone. It emits all errors of the start.
 */
function startLater(
  context: SupervisorContext,
  run: LiveRun,
  plan: StdioPlan,
  { channel, release }: Borrowed,
): void {
  const { process: child, settings } = run
  const { errno, fds, stdio, theirs } = openStreams(plan.slots)
  if (errno !== 0) {
    release()
    run.failed(errno, channel)
    return
  }
  run.postpone(fds, channel)
  handOver(plan.lent, child.end)
  const start = () => {
    context.refuseWhileClosing()
    const refused = tryToStart(context, run, stdio, run.stdio.openOutputs(), channel)
    if (refused !== 0) {
      const error = errnoError(refused, `spawn ${settings.file}`)
      nameBadDirectory(error, settings)
      throw error
    }
    if (spawning.hasSubscribers) spawning.end.publish({ process: child })
  }
  startInTurn(context, settings.scopeKey as string, child, start)
    .catch((error) => {
      if (spawning.hasSubscribers) spawning.error.publish({ process: child, error })
      run.failedToStart(error)
    })
    .finally(() => {
      for (const fd of theirs) if (fd >= 0) closeStream(fd)
      release()
    })
}

/** Loads ipc.ts on demand: few runs need it. */
const ipc = () => require('./ipc.js') as typeof import('./ipc.js')

/**
 * Starts the command. Returns an errno, or 0.
 *
 * It has two steps, `begin` and `finish`, so that the streams are attached while the keeper
 * executes the command.
 */
function tryToStart(
  context: SupervisorContext,
  run: LiveRun,
  stdio: number[],
  outputs: number[],
  channel: BorrowedChannel | undefined,
): number {
  const registry = openedRegistry(context)
  if (typeof registry === 'number') return registry
  run.starting()
  const pending = begin(registry, run.settings, stdio, outputs)
  // Without free file descriptors the process has no streams, as in Node.
  let pipes: Pipes | undefined
  let native: ReturnType<typeof pending.finish>
  try {
    if (pending.fds.length > 0) pipes = run.attach(pending.fds)
    native = pending.finish((event) => run.onNative(event))
  } catch (error) {
    pipes?.discard()
    pending.discard()
    throw error
  }
  if (typeof native === 'number') {
    if (!EMITTED.has(errnoError(native, 'spawn').code ?? '')) pipes?.discard()
    return native
  }
  run.started(pending.pid, native, channel)
  return 0
}

/** Opens the registry. Returns an errno instead for an error that Node emits. */
function openedRegistry(context: SupervisorContext): NativeRegistry | number {
  try {
    return context.writing().native
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? ''
    if (!EMITTED.has(code)) throw error
    return constants.errno[code as keyof typeof constants.errno]
  }
}
