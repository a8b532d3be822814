// Signals the root process of a run, as `ChildProcess.kill` does.

import { errnoError } from '../util/errors.js'
import { endsByDefault, signalName } from '../util/signals.js'
import { isWindows } from '../util/windows.js'
import type { LiveRun } from './live-run.js'

/** Sends a signal. Returns false if the root process is gone. */
export function signalRoot(run: LiveRun, signal: number): boolean {
  const { native, process, descendants } = run
  if (run.hasRootExited || native === undefined) return false
  const errno = native.signal(signal)
  if (errno !== 0 && !hasKeeperEnded(run, errno)) return false
  process.killed = true
  if (endsByDefault(signal)) descendants.killSignal = signalName(signal)
  return true
}

/**
 * Whether a signal could not be sent because the keeper has ended.
 *
 * Throws if this system does not have the signal, as Node does.
 */
function hasKeeperEnded(run: LiveRun, errno: number): boolean {
  const error = errnoError(errno, 'kill')
  if (error.code === 'EINVAL' || error.code === 'ENOSYS') throw error
  // The keeper has ended, so the root process has too. Its exit is not reported yet. In Node, a
  // signal to a zombie succeeds as well.
  if (error.code === 'EPIPE' || error.code === 'ECONNRESET') return true
  // On Windows the error comes from the process. On Unix it comes from the socket to the keeper.
  if (isWindows) emitSignalError(run, errno)
  return false
}

/** Emits `error`, except for ESRCH: the process has exited, and its exit is not reported yet. */
export function emitSignalError({ promises, process }: LiveRun, errno: number): void {
  const error = errnoError(errno, 'kill')
  if (error.code !== 'ESRCH') promises.emitError(process, error)
}
