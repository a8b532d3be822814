// Waits that end at a timeout or when an AbortSignal fires.

import { abortError } from './errors.js'
import { clearInterval, clearTimeout, setInterval, setTimeout } from './timers.js'

/** The longest delay of a timer. */
const LONGEST_MS = 2 ** 31 - 1

export const LATE = Symbol('late')

/**
 * Resolves to the result of `work`, or to `LATE` after `ms` milliseconds.
 *
 * Rejects when the signal fires. The work then continues, and its result is ignored.
 */
export function within<T>(
  work: Promise<T>,
  ms: number,
  signal: AbortSignal | undefined,
): Promise<T | typeof LATE> {
  return new Promise((resolve, reject) => {
    const onAbort = () => settle(() => reject(abortError(signal?.reason)))
    const timer = setTimeout(() => settle(() => resolve(LATE)), Math.min(ms, LONGEST_MS))
    const settle = (action: () => void) => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
      action()
    }
    signal?.addEventListener('abort', onAbort)
    if (signal?.aborted) onAbort()
    work.then(
      (value) => settle(() => resolve(value)),
      (error) => settle(() => reject(error)),
    )
  })
}

/**
 * Keeps the event loop alive until `work` settles.
 *
 * A run that was unref'ed does not keep it alive, so a bot that waits for one could exit too early.
 */
export async function awake<T>(work: () => Promise<T>): Promise<T> {
  const holding = setInterval(() => {}, LONGEST_MS)
  try {
    return await work()
  } finally {
    clearInterval(holding)
  }
}

const never = new Promise<never>(() => {})

export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await within(never, ms, signal)
}
