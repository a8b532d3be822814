// Pseudo-random choices. The tests always make the same ones; SEED=<number> makes others. `npm run
// stress` and `npm run fuzz` set it to a fresh number and print it.
import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'

const FIXED_SEED = 20_261_118

export const seed = Number(process.env.SEED ?? FIXED_SEED)

/**
 * The seeds of a test that draws arguments: the fixed one, then those with which `npm run fuzz` saw
 * it fail.
 */
export function seedsFor(kind, name) {
  if (process.env.SEED !== undefined) return [seed]
  const saved = JSON.parse(readFileSync(new URL('../fixtures/data/fuzz-seeds.json', import.meta.url), 'utf8'))
  return [seed, ...(saved[kind][name] ?? [])]
}

/** One sequence per name, so that parallel tests do not share one. */
export const randomFor = (name) => sequence(seed, name)

/** mulberry32 over a seed and a name: numbers from 0 to 1, the same each time. */
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

/** Timers have whole milliseconds. The rest is a busy loop, so that any instant can be hit. */
export async function instant(afterMs) {
  const at = performance.now() + afterMs
  if (afterMs >= 2) await delay(Math.floor(afterMs) - 1)
  while (performance.now() < at);
}
