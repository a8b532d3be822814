/** Worker side: reapOrphans over a registry full of runs whose processes are all dead. */

import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { reapOrphans } from 'spawn-owned'

const ours = async () => (await reapOrphans(process.pid)).alreadyDead

/** How long it takes, what the event loop has to do with it, and when the file knows. `way` finds the dead in the file at `path`. */
export async function reapTheDead(_start, { path, entries }, way = ours) {
  const pulse = startPulse()
  const loop = performance.eventLoopUtilization()
  const before = performance.now()
  const dead = await way(path)
  const after = performance.now()
  const { active } = performance.eventLoopUtilization(loop)
  await delay(1)
  const longest = pulse.stop()
  if (dead.length !== entries) throw new Error(`${dead.length} of ${entries} were found dead`)
  const behind = await untilEmpty(path, after)
  return { ms: after - before, busy: active, longest, behind }
}

/** The longest time in which the event loop did not come round. */
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
    if (performance.now() - since > 10_000) throw new Error('the file does not follow')
    await delay(5)
  }
  return performance.now() - since
}
