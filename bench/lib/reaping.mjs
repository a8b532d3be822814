/** Worker side: reapOrphans over a registry full of runs whose processes are all dead. */

import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { reapOrphans } from 'spawn-owned'

const ours = async () => (await reapOrphans(process.pid)).alreadyDead

/**
 * How long the reap takes, how long it keeps the event loop busy, and when the file is up to date.
 * `way` finds the dead entries in the file at `path`.
 */
export async function reapTheDead(_start, { path, entries }, way = ours) {
  const pulse = startPulse()
  const loop = performance.eventLoopUtilization()
  const before = performance.now()
  const dead = await way(path)
  const after = performance.now()
  const { active } = performance.eventLoopUtilization(loop)
  await delay(1)
  const longest = pulse.stop()
  if (dead.length !== entries)
    throw new Error(`the reap found ${dead.length} dead entries, expected ${entries}`)
  const behind = await untilEmpty(path, after)
  return { ms: after - before, busy: active, longest, behind }
}

/** Measures the longest time between two turns of the event loop. */
function startPulse() {
  let last = performance.now()
  let longest = 0
  const timer = setInterval(() => {
    const now = performance.now()
    longest = Math.max(longest, now - last)
    last = now
  }, 1)
  return {
    stop() {
      clearInterval(timer)
      return longest
    },
  }
}

async function untilEmpty(path, since) {
  while (JSON.parse(readFileSync(path, 'utf8')).entries.length > 0) {
    if (performance.now() - since > 10_000) throw new Error('the registry file still has entries after 10 s')
    await delay(5)
  }
  return performance.now() - since
}
