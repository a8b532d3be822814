// Random instants that can be had again: SEED=<number> repeats a failed run's choices.
import { setTimeout as delay } from 'node:timers/promises'

export const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 32))

/** So that tests running side by side do not share one sequence. */
export const randomFor = (name) => sequence(seed, name)

/** mulberry32 over a seed and a name: numbers from 0 to 1, the same ones each time. */
export function sequence(from, name) {
  let state = from
  for (const char of name) state = Math.imul(state ^ char.codePointAt(0), 0x01000193)
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Timers count whole milliseconds; the rest of the way is spun, so that any instant can be hit. */
export async function instant(afterMs) {
  const at = performance.now() + afterMs
  if (afterMs >= 2) await delay(Math.floor(afterMs) - 1)
  while (performance.now() < at);
}
