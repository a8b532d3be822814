// spawnOwned: read the arguments, start the run, hand out the process.

import { channel as diagnosticsChannel, tracingChannel } from 'node:diagnostics_channel'
import { codedError, errnoError, invalidValue } from './errors.js'
import type { BorrowedChannel, BorrowedStream } from './ipc.js'
import { begin, closeStream, keeperPath, openStreams } from './native.js'
import { nodeSpawn } from './nodes-own.js'
import { environment, type RunSettings, readArguments } from './options.js'
import { OwnedProcess } from './owned-process.js'
import type { Owner } from './owner.js'
import { refuseChannelsElsewhere } from './runtimes.js'
import { startIfEmpty, startInTurn } from './scopes.js'
import { handOver, hasOutput, type Pipes, planStdio, planTerminal, type StdioPlan } from './stdio.js'

const created = diagnosticsChannel('child_process')
const spawning = tracingChannel('child_process.spawn')

/** Failures to start that are the command's own: they emit `error` instead of throwing, as in Node. */
const EMITTED = new Set(['EACCES', 'EAGAIN', 'EMFILE', 'ENFILE', 'ENOENT'])

export function spawn(
  owner: Owner,
  command: unknown,
  args?: unknown,
  options?: unknown,
  service?: string,
): OwnedProcess {
  const settings = readArguments(command, args, options, owner.graceMs)
  if (service !== undefined) settings.service = service
  owner.refuseWhileClosing()
  if (owner.runs.isLive(settings.runId)) {
    throw codedError(
      Error,
      'ERR_OWNED_DUPLICATE_RUN',
      `options.runId "${settings.runId}" names a run that is alive. Cancel it first, or choose another id.`,
    )
  }
  const plan = settings.terminal ? planTerminal() : planStdio(settings.stdio)
  if (settings.silenceMs > 0 && !hasOutput(plan)) {
    throw invalidValue(
      'options.noOutputTimeoutMs',
      settings.silenceMs,
      "needs output that can be observed: make stdout or stderr a 'pipe' in options.stdio, or leave it out",
    )
  }
  const child = new OwnedProcess(settings, owner)
  if (created.hasSubscribers) created.publish({ process: child })
  if (spawning.hasSubscribers) spawning.start.publish({ process: child, options: settings })
  try {
    const borrowed = borrow(settings, plan)
    const start = () => startNow(owner, child, settings, plan, borrowed)
    if (!settings.replaceScope) start()
    else if (!startIfEmpty(owner, settings.scopeKey as string, start))
      startLater(owner, child, settings, plan, borrowed)
  } catch (error) {
    if (spawning.hasSubscribers) spawning.error.publish({ process: child, error })
    throw error
  }
  return child
}

/** What the command gets with the help of Node: its channel, and sockets that only Node can pass on. */
interface Borrowed {
  readonly channel: BorrowedChannel | undefined
  /** The command has its own by now, or there is none. */
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
  refuseChannelsElsewhere()
  const channel = ipc().borrowChannel(nodeSpawn, keeperPath, settings.serialization)
  plan.slots[plan.ipc] = channel.slot
  settings.env ??= environment(undefined)
  settings.env.push(
    `NODE_CHANNEL_FD=${plan.ipc}`,
    `NODE_CHANNEL_SERIALIZATION_MODE=${settings.serialization}`,
  )
  return channel
}

/** Throws if nothing was started, except for the failures that Node emits. */
function startNow(
  owner: Owner,
  child: OwnedProcess,
  settings: RunSettings,
  plan: StdioPlan,
  { channel, release }: Borrowed,
): void {
  try {
    const errno = tryToStart(owner, child, settings, plan.slots, [], channel)
    if (errno === 0) {
      handOver(plan.lent, child.wait())
      if (spawning.hasSubscribers) spawning.end.publish({ process: child })
      return
    }
    const error = errnoError(errno, 'spawn')
    if (!EMITTED.has(error.code ?? '')) throw error
    if (spawning.hasSubscribers) spawning.error.publish({ process: child, error })
    child.failed(errno, channel)
  } catch (error) {
    channel?.channel.disconnect()
    throw error
  } finally {
    // If there is no command, Node's end of the channel sees that and disconnects.
    release()
  }
}

/**
 * Hands out a process that is `starting`, with its streams, and starts the command when the scope's earlier runs are gone. What
 * would have been thrown is emitted.
 */
function startLater(
  owner: Owner,
  child: OwnedProcess,
  settings: RunSettings,
  plan: StdioPlan,
  { channel, release }: Borrowed,
): void {
  const { errno, fds, stdio, theirs } = openStreams(plan.slots)
  if (errno !== 0) {
    release()
    child.failed(errno, channel)
    return
  }
  child.postpone(fds, channel)
  handOver(plan.lent, child.wait())
  const start = () => {
    owner.refuseWhileClosing()
    const refused = tryToStart(owner, child, settings, stdio, child.openOutputs(), channel)
    if (refused !== 0) throw errnoError(refused, `spawn ${settings.file}`)
    if (spawning.hasSubscribers) spawning.end.publish({ process: child })
  }
  startInTurn(owner, settings.scopeKey as string, child, start)
    .catch((error) => {
      if (spawning.hasSubscribers) spawning.error.publish({ process: child, error })
      child.failedToStart(error)
    })
    .finally(() => {
      for (const fd of theirs) if (fd >= 0) closeStream(fd)
      release()
    })
}

/** Few runs have a channel, or such a socket. */
const ipc = () => require('./ipc.js') as typeof import('./ipc.js')

/** What can be done while the command is being executed is done then: that is what the two steps are for. */
function tryToStart(
  owner: Owner,
  child: OwnedProcess,
  settings: RunSettings,
  stdio: number[],
  outputs: number[],
  channel: BorrowedChannel | undefined,
): number {
  child.starting()
  const beginning = begin(owner.writing().native, {
    runId: settings.runId,
    givenId: settings.givenId,
    sessionId: settings.sessionId,
    backendId: settings.backendId,
    scopeKey: settings.scopeKey,
    service: settings.service,
    labels: labelsAsJson(settings.labels),
    preview: settings.preview,
    file: settings.file,
    argv: block(settings.argv),
    env: settings.env && block(settings.env),
    cwd: settings.cwd,
    uid: settings.uid,
    gid: settings.gid,
    windowsHide: settings.windowsHide,
    verbatimArguments: settings.windowsVerbatimArguments,
    stdio,
    terminal: settings.terminal,
    keepOnOwnerExit: settings.keepOnOwnerExit,
    keepOnLeaderExit: settings.keepOnLeaderExit,
    graceMs: settings.graceMs,
    containment: settings.containment,
    memoryBytes: settings.memoryBytes,
    processes: settings.processes,
    timeoutMs: settings.timeoutMs,
    timeoutSignal: settings.timeoutSignal,
    silenceMs: settings.silenceMs,
    outputs,
  })
  // Without descriptors to be had there are no streams either, as in Node.
  let pipes: Pipes | undefined
  let run: ReturnType<typeof beginning.finish>
  try {
    if (beginning.fds.length > 0) pipes = child.attach(beginning.fds)
    run = beginning.finish((event) => child.onNative(event))
  } catch (error) {
    pipes?.discard()
    beginning.discard()
    throw error
  }
  if (typeof run === 'number') {
    if (!EMITTED.has(errnoError(run, 'spawn').code ?? '')) pipes?.discard()
    return run
  }
  child.started(beginning.pid, run, channel)
  return 0
}

/** Most runs have none. */
function labelsAsJson(labels: Readonly<Record<string, string>>): string | undefined {
  for (const _ in labels) return JSON.stringify(labels)
  return undefined
}

/** Strings as the native side wants them: each ended by a NUL. None contains one. */
function block(strings: readonly unknown[]): string {
  // Not `join` alone: that would print null as nothing.
  return strings.map((text) => `${String(text)}\0`).join('')
}
