// Node's timers and clocks, taken when the package is loaded.
//
// Test runners replace the global ones: by fake timers (jest, vitest, sinon), which stand still until
// the test moves them, or by those of a browser (jsdom), which return numbers. The processes of a run
// do not stand still, so their events must arrive in real time.
//
// All code of ts/ except the command line uses these. A test checks that.

import { performance } from 'node:perf_hooks'
import timers from 'node:timers'

export const { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate } = timers

/** Milliseconds of a clock that never goes back. Only differences have a meaning. */
export const monotonicMs = performance.now.bind(performance)

/** Milliseconds since 1970, in the clock of the system. */
export const epochMs = Date.now

/** Calls back after the current operation, before the event loop continues. */
export const nextTick: typeof process.nextTick = isFake(process.nextTick)
  ? // Fake timers were installed before this package was loaded (`enableGlobally` of jest).
    (callback, ...args) => void Promise.resolve().then(() => callback(...args))
  : process.nextTick.bind(process)

/** Fake timers of sinon, which jest and vitest use too, refer to their clock. */
function isFake(timer: object): boolean {
  return 'clock' in timer
}

/** Resolves in the next turn of the event loop. */
export const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))
