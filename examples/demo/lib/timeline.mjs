import { cast, noteFor } from './cast.mjs'
import { duration } from './terminal.mjs'

/** One sentence on how fast a tree ended. It names the process that needed SIGKILL separately. */
export function timeline(ends) {
  if (ends.length < cast.length) return `${ends.length} of ${cast.length} processes ended.`
  const last = ends.at(-1)
  const others = ends.at(-2)
  if (last.ms - others.ms < 200) return `All ${ends.length} processes had ended after ${duration(last.ms)}.`
  return (
    `${ends.length - 1} of ${ends.length} processes had ended after ${duration(others.ms)}, ` +
    `the last one after ${duration(last.ms)}: ${last.name} (${noteFor(last.name)}) got SIGKILL after the grace period (graceMs: 1000).`
  )
}
