// Extends and changes the timeouts of a run. The native side measures them.

import type { DeadlineChange } from '../../index.js'
import { codedError, invalidType } from '../util/errors.js'
import { duration } from '../util/validation.js'
import type { LiveRun } from './live-run.js'
import { readDeadlineChange } from './run-changes.js'

/** Extends both timeouts. Returns false if the run is being terminated or has ended. */
export function extendDeadline({ settings, state, isPostponed, native }: LiveRun, ms: number): boolean {
  const more = duration(ms, 'ms')
  if (more === undefined) throw invalidType('ms', 'of type number', ms)
  if (settings.timeoutMs === 0 && settings.idleTimeoutMs === 0) {
    throw codedError(
      Error,
      'ERR_OWNED_NO_DEADLINE',
      `Run "${settings.runId}" has no deadline to extend. Start it with options.timeoutMs or options.noOutputTimeoutMs.`,
    )
  }
  if (isPostponed) {
    if (settings.timeoutMs > 0) settings.timeoutMs += more
    return true
  }
  return state === 'running' && native?.extend(more) === 0
}

/** Sets the timeouts, from now on. Returns false if the run is being terminated or has ended. */
export function setDeadline(run: LiveRun, change: DeadlineChange): boolean {
  const { settings, state, isPostponed, native, stdio } = run
  const { timeoutMs, noOutputTimeoutMs } = readDeadlineChange(change, run.process)
  if (!isPostponed && (state !== 'running' || !native)) return false
  if (timeoutMs !== undefined) {
    // The tree is being terminated, and the bot has not received that event yet.
    if (native && native.setOverallTimeout(timeoutMs, settings.timeoutSignal) !== 0) return false
    settings.timeoutMs = timeoutMs
  }
  if (noOutputTimeoutMs !== undefined) {
    settings.idleTimeoutMs = noOutputTimeoutMs
    run.output.setIdleTimeout(noOutputTimeoutMs)
    native?.setIdleTimeout(noOutputTimeoutMs, stdio.openOutputs())
    stdio.reportReading()
  }
  return true
}
