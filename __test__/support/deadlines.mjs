// Runs with timeouts, and programs that write output or none.
import assert from 'node:assert/strict'
import { assertGone, freshRegistry, supervise } from './bots.mjs'
import { program } from './fixtures.mjs'
import { GRACE_FOR_ALL_MS } from './system.mjs'
import { openWitness } from './witness.mjs'

export const FOR_EVER = 1e8

/**
 * An idle time that does not occur by accident on a busy machine: programs that write regularly do
 * so 50 times as often.
 */
export const SILENCE_MS = 1500
export const OFTEN_MS = SILENCE_MS / 50
/** Long enough for two idle timeouts, if output were not noticed. */
export const LONG_MS = 2 * SILENCE_MS

/** Writes to a file descriptor every `everyMs`, `times` times (0: for ever). */
export const talking = (to, everyMs = OFTEN_MS, times = 0) => [
  program('talks'),
  [to, everyMs, times].map(String),
]
export const silent = () => [program('stays'), []]

/**
 * A ready run of this process, with its own supervisor. The witness is the first argument, or the
 * last one of `sh`.
 */
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

/** Asserts that the idle timeout ended it, and not too early. */
export async function assertSilenced({ child, witness }, limitMs = SILENCE_MS) {
  const exit = await child.wait()
  assertGone(witness)
  const { reason, timedOut, noOutputTimedOut, message } = exit
  const expected = ['no-output-timeout', true, true, `no output for ${limitMs / 1000}s`]
  assert.deepEqual([reason, timedOut, noOutputTimedOut, message], expected)
  assert.ok(exit.durationMs >= limitMs - 1, `${exit.durationMs} ms`)
  return exit
}
