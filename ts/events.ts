// What a supervisor tells, whether or not it was asked: to its own listeners, and to whoever has subscribed in this process.

import { type Channel, channel } from 'node:diagnostics_channel'
import type { EventEmitter } from 'node:events'
import type { OrphanEvent, OrphanEventName, OwnedEvent, RunEvent } from '../index.js'
import type { Described } from './filters.js'

/**
 * `spawn-owned:exited`, and so on. All of them from the beginning: Bun forgets a channel, and who has subscribed to it, unless
 * somebody else holds it.
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

/** What an event of that type has that not every event about a run has. */
export type Details<T extends RunEvent['type']> = Omit<
  Extract<RunEvent, { type: T }>,
  'type' | 'atMs' | 'runId' | 'pid' | 'sessionId' | 'scopeKey' | 'labels'
>

export class Announcer {
  #emitter: EventEmitter

  constructor(emitter: EventEmitter) {
    this.#emitter = emitter
  }

  /** Whether anybody would hear it: what nobody hears need not be put together. */
  isHeard(type: OwnedEvent['type']): boolean {
    return this.#emitter.listenerCount('event') > 0 || channels[type].hasSubscribers
  }

  /** Whether the supervisor has a listener for that. */
  hasListener(name: OrphanEventName): boolean {
    return this.#emitter.listenerCount(name) > 0
  }

  /** Something about an orphan. */
  tellOrphan(name: OrphanEventName, event: OrphanEvent): void {
    this.#emit(name, event)
  }

  /** Something about a run, if anybody would hear it. */
  tell<T extends RunEvent['type']>(run: Described, type: T, details: Details<T>): void {
    if (!this.isHeard(type)) return
    const { runId, pid, sessionId, scopeKey, labels = {} } = run
    const about = { runId, pid, sessionId: sessionId ?? undefined, scopeKey, labels, atMs: Date.now() }
    this.announce({ type, ...about, ...details } as unknown as RunEvent)
  }

  /**
   * Returns whether a listener of the supervisor's has heard it. One that throws is the bot's affair, on a tick of its own, as with
   * `diagnostics_channel`: what is going on here goes on.
   */
  announce(event: OwnedEvent): boolean {
    channels[event.type].publish(event)
    return this.#emit('event', event)
  }

  /** See above. */
  #emit(name: string, event: unknown): boolean {
    try {
      return this.#emitter.emit(name, event)
    } catch (error) {
      process.nextTick(() => {
        throw error
      })
      return true
    }
  }
}
