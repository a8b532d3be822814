// spawnOwned: read the arguments, start the run, hand out the process.

import diagnostics from 'node:diagnostics_channel'
import { closeSync } from 'node:fs'
import type { spawnOwned as SpawnOwned } from '../index.js'
import { codedError, errnoError } from './errors.js'
import { borrowChannel } from './ipc.js'
import { keeperPath, launch } from './native.js'
import { type RunSettings, readArguments, type SpawnArguments } from './options.js'
import { OwnedProcess } from './owned-process.js'
import * as runs from './runs.js'
import { handOver, planStdio, type StdioPlan } from './stdio.js'

const created = diagnostics.channel('child_process')
const spawning = diagnostics.tracingChannel('child_process.spawn')

/** Failures to start that are the command's own: they emit `error` instead of throwing, as in Node. */
const EMITTED = new Set(['EACCES', 'EAGAIN', 'EMFILE', 'ENFILE', 'ENOENT'])

function spawn(...args: SpawnArguments): OwnedProcess {
  const settings = readArguments(args)
  if (runs.isLive(settings.runId)) {
    throw codedError(
      Error,
      'ERR_OWNED_DUPLICATE_RUN',
      `options.runId "${settings.runId}" names a run that is alive. Cancel it first, or choose another id.`,
    )
  }
  const plan = planStdio(settings.stdio)
  const child = new OwnedProcess(settings)
  if (created.hasSubscribers) created.publish({ process: child })
  if (spawning.hasSubscribers) spawning.start.publish({ process: child, options: settings })
  try {
    start(child, settings, plan)
  } catch (error) {
    if (spawning.hasSubscribers) spawning.error.publish({ process: child, error })
    throw error
  }
  return child
}

function start(child: OwnedProcess, settings: RunSettings, plan: StdioPlan): void {
  const channel = plan.ipc === undefined ? undefined : borrowChannel(keeperPath, settings.serialization)
  if (channel && plan.ipc !== undefined) {
    plan.slots[plan.ipc] = channel.fd
    settings.env.push(
      `NODE_CHANNEL_FD=${plan.ipc}`,
      `NODE_CHANNEL_SERIALIZATION_MODE=${settings.serialization}`,
    )
  }
  let run: ReturnType<typeof launch>
  try {
    run = launch(
      {
        runId: settings.runId,
        preview: settings.preview,
        file: settings.file,
        argv: block(settings.argv),
        env: block(settings.env),
        cwd: settings.cwd,
        uid: settings.uid,
        gid: settings.gid,
        stdio: plan.slots,
        keepOnOwnerExit: settings.keepOnOwnerExit,
        keepOnLeaderExit: settings.keepOnLeaderExit,
        graceMs: settings.graceMs,
        timeoutMs: settings.timeoutMs,
        timeoutSignal: settings.timeoutSignal,
      },
      (event) => child.onNative(event),
    )
  } catch (error) {
    channel?.discard()
    throw error
  }
  if (!('errno' in run)) {
    channel?.release()
    handOver(plan.lent)
    child.started(run, channel)
    if (spawning.hasSubscribers) spawning.end.publish({ process: child })
    return
  }
  channel?.discard()
  const error = errnoError(run.errno, 'spawn')
  if (!EMITTED.has(error.code ?? '')) {
    for (const fd of run.fds) if (fd >= 0) closeSync(fd)
    throw error
  }
  if (spawning.hasSubscribers) spawning.error.publish({ process: child, error })
  child.failed(run)
}

/** Strings as the native side wants them: each ended by a NUL. None contains one. */
function block(strings: readonly string[]): string {
  return strings.length === 0 ? '' : `${strings.join('\0')}\0`
}

export const spawnOwned = spawn as unknown as typeof SpawnOwned
