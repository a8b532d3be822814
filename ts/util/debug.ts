// `NODE_DEBUG=spawn-owned`: lines on stderr about the JavaScript side. SPAWN_OWNED_DEBUG traces the
// native side.

import { debuglog } from 'node:util'
import type { OwnedEvent } from '../../index.js'

/** Writes a line, like `util.format`. Does nothing without `NODE_DEBUG=spawn-owned`. */
export const debug = debuglog('spawn-owned')

/** Whether `debug` writes. Check it before work that only `debug` needs. */
export const isDebugging = (): boolean => debug.enabled

/** Returns a short text for an event. It contains neither arguments nor environments. */
export function describe(event: OwnedEvent): string {
  switch (event.type) {
    case 'shutdown':
    case 'registry':
    case 'lease':
      return `${event.type} ${'phase' in event ? event.phase : event.message}`
    case 'reap-decision':
      return `run=${event.runId} reap: ${event.decision}, ${event.outcome} (${event.reason})`
    case 'exiting':
      return `run=${event.runId} exiting (${event.reason})`
    case 'exited':
      return `run=${event.runId} exited: ${event.exit.message}`
    case 'deadline-warning':
      return `run=${event.runId} ${event.deadline} deadline in ${event.remainingMs} ms`
    case 'escape':
      return `run=${event.runId} left ${event.escaped.length} processes outside its session`
    default:
      return `run=${event.runId} ${event.type} pid=${event.pid}`
  }
}
