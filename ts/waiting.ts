// Waiting, but not for ever, and not for somebody who has changed his mind.

import { abortError } from './errors.js'

/** As long as a timer can be. */
const LONGEST_MS = 2 ** 31 - 1

export const LATE = Symbol('late')

/** What `work` comes to, or `LATE` after so many ms. Rejects when the signal fires; the work goes on, and nobody hears of it. */
export function within<T>(
  work: Promise<T>,
  ms: number,
  signal: AbortSignal | undefined,
): Promise<T | typeof LATE> {
  return new Promise((resolve, reject) => {
    const onAbort = () => settle(() => reject(abortError(signal?.reason)))
    const timer = setTimeout(() => settle(() => resolve(LATE)), Math.min(ms, LONGEST_MS))
    const settle = (how: () => void) => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
      how()
    }
    signal?.addEventListener('abort', onAbort)
    if (signal?.aborted) onAbort()
    work.then(
      (value) => settle(() => resolve(value)),
      (error) => settle(() => reject(error)),
    )
  })
}

/** The event loop stays alive for it: runs that were unref'ed do not see to that, and who waits for them must not end before. */
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
