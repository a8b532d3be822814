// The events of a supervisor: for its own listeners, and for the subscribers of the process
// (diagnostics_channel).

import { type Channel, channel } from 'node:diagnostics_channel'
import type { EventEmitter } from 'node:events'
import type { OrphanEvent, OrphanEventName, OwnedEvent, RunEvent } from '../../index.js'
import type { Described } from '../run/run-filters.js'
import { debug, describe, isDebugging } from '../util/debug.js'
import { epochMs, nextTick } from '../util/timers.js'

/**
 * The channels, for example `spawn-owned:exited`.
 *
 * They all exist from the start: Bun drops a channel and its subscribers if no code holds the
 * channel.
 */
const channels: Record<OwnedEvent['type'], Channel> = {
  spawn: channel('spawn-owned:spawn'),
  started: channel('spawn-owned:started'),
  output: channel('spawn-owned:output'),
  'deadline-warning': channel('spawn-owned:deadline-warning'),
  exiting: channel('spawn-owned:exiting'),
  escape: channel('spawn-owned:escape'),
  exited: channel('spawn-owned:exited'),
  shutdown: channel('spawn-owned:shutdown'),
  'reap-decision': channel('spawn-owned:reap-decision'),
  registry: channel('spawn-owned:registry'),
  lease: channel('spawn-owned:lease'),
}

/** The fields of an event that not every event about a run has. */
export type Details<T extends RunEvent['type']> = Omit<
  Extract<RunEvent, { type: T }>,
  'type' | 'atMs' | 'runId' | 'pid' | 'sessionId' | 'scopeKey' | 'labels'
>

export class SupervisorEvents {
  #emitter: EventEmitter

  constructor(emitter: EventEmitter) {
    this.#emitter = emitter
  }

  /**
   * Whether an event of this type has a listener or a subscriber, or is written to stderr. If not,
   * do not build it.
   */
  hasSubscribers(type: OwnedEvent['type']): boolean {
    return this.#emitter.listenerCount('event') > 0 || channels[type].hasSubscribers || isDebugging()
  }

  /** Whether the supervisor has a listener for this orphan event. */
  hasListener(name: OrphanEventName): boolean {
    return this.#emitter.listenerCount(name) > 0
  }

  /** Emits an event about an orphan. */
  emitOrphan(name: OrphanEventName, event: OrphanEvent): void {
    this.#emit(name, event)
  }

  /** Emits an event about a run, if it has a listener or a subscriber. */
  emitRun<T extends RunEvent['type']>(run: Described, type: T, details: Details<T>): void {
    if (!this.hasSubscribers(type)) return
    const { runId, pid, sessionId, scopeKey, labels = {} } = run
    const about = { runId, pid, sessionId: sessionId ?? undefined, scopeKey, labels, atMs: epochMs() }
    this.emit({ type, ...about, ...details } as unknown as RunEvent)
  }

  /** Publishes an event. Returns whether the supervisor has a listener for it. */
  emit(event: OwnedEvent): boolean {
    if (isDebugging()) debug('%s', describe(event))
    channels[event.type].publish(event)
    return this.#emit('event', event)
  }

  /**
   * Calls the listeners of the supervisor.
   *
   * An error of a listener is thrown in its own tick, as `diagnostics_channel` does. It must not
   * stop the operation that emits the event.
   */
  #emit(name: string, event: unknown): boolean {
    try {
      return this.#emitter.emit(name, event)
    } catch (error) {
      nextTick(() => {
        throw error
      })
      return true
    }
  }
}
