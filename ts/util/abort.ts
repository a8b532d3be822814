// Listens to an AbortSignal.

import { nextTick } from './timers.js'

/**
 * Calls `act` when the signal aborts, or on the next tick if it has.
 *
 * Returns a function that stops listening.
 */
export function whenAborted(signal: AbortSignal, act: () => void): () => void {
  if (signal.aborted) nextTick(act)
  else signal.addEventListener('abort', act, { once: true })
  return () => signal.removeEventListener('abort', act)
}
