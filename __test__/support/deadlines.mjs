// Runs with deadlines, and programs that talk or do not.
import assert from 'node:assert/strict'
import { assertGone, freshRegistry, supervise } from './bots.mjs'
import { program } from './fixtures.mjs'
import { GRACE_FOR_ALL_MS } from './system.mjs'
import { openWitness } from './witness.mjs'

export const FOR_EVER = 1e8

/** A silence that no busy machine keeps by accident: what is to talk all the while does so 50 times as often. */
export const SILENCE_MS = 1500
export const OFTEN_MS = SILENCE_MS / 50
/** The time in which one that is not heard of would have been ended twice. */
export const LONG_MS = 2 * SILENCE_MS

/** Words on a descriptor, so often and so many times (0: for ever). */
export const talking = (to, everyMs = OFTEN_MS, times = 0) => [
  program('talks'),
  [to, everyMs, times].map(String),
]
export const silent = () => [program('stays'), []]

/** A run of this process, standing, with a supervisor of its own. The witness is the first argument, or the last one of `sh`. */
export async function standing(t, [command, args], { ready = 1, ...more } = {}) {
  const here = supervise(freshRegistry())
  const witness = openWitness(t)
  const all = command === 'sh' ? [...args, witness.path] : [witness.path, ...args]
  const from = performance.now()
  const child = here.spawnOwned(command, all, { graceMs: GRACE_FOR_ALL_MS, ...more })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  await witness.ready(ready)
  return { child, from, here, witness }
}

/** It ends because it was silent for so long, and not before. */
export async function assertSilenced({ child, witness }, limitMs = SILENCE_MS) {
  const exit = await child.wait()
  assertGone(witness)
  const { reason, timedOut, noOutputTimedOut, message } = exit
  const expected = ['no-output-timeout', true, true, `no output for ${limitMs / 1000}s`]
  assert.deepEqual([reason, timedOut, noOutputTimedOut, message], expected)
  assert.ok(exit.durationMs >= limitMs - 1, `${exit.durationMs} ms`)
  return exit
}
