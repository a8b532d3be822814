// A run whose bot is gone and that has a new owner: no streams, but an end.

import type { CancelOptions, RunExit, RunRecord, RunState } from '../index.js'
import { type How, readCancelOptions } from './cancel-options.js'
import { describeExit, type Ending } from './exit.js'
import type { NativeEvent, NativeRun } from './native.js'
import type { Owner } from './owner.js'
import { exitOfEnded, exitOfRecord, isKept } from './records.js'
import { type EndedRun, keyOf, type Registry } from './registry.js'
import { signalName } from './signals.js'

export class AdoptedRun {
  static readonly name = 'AdoptedRun'

  readonly runId: string
  readonly pid: number
  record: RunRecord
  readonly sessionId: string | undefined
  readonly scopeKey: string | undefined
  readonly service: string | undefined
  readonly labels: Readonly<Record<string, string>>

  #owner: Owner
  #registry: Registry
  #native: NativeRun | undefined
  #state: RunState
  #ending: Ending | undefined
  /** Cancels under way. What is heard of the end meanwhile waits: without a keeper it does not know of them. */
  #cancels = 0
  #heard: NativeEvent | undefined
  #exitCode: number | null = null
  #signal: NodeJS.Signals | null = null
  #end: Promise<RunExit>
  #settle!: (exit: RunExit) => void

  constructor(record: RunRecord, owner: Owner) {
    this.runId = record.runId
    this.pid = record.pid
    this.record = record
    this.sessionId = record.sessionId ?? undefined
    this.scopeKey = record.scopeKey
    this.service = record.service
    this.labels = record.labels ?? {}
    this.#owner = owner
    this.#registry = owner.writing()
    this.#state = record.state
    this.#end = new Promise((resolve) => {
      this.#settle = resolve
    })
  }

  get state(): RunState {
    return this.#state
  }

  get wasCancelled(): boolean {
    return this.#ending === 'cancel'
  }

  /** It is to outlive this bot too. */
  get isKept(): boolean {
    return isKept(this.record)
  }

  /** Somebody waits: then the event loop does too. */
  wait(): Promise<RunExit> {
    this.#native?.keepAlive(true)
    return this.#end
  }

  async cancel(options?: CancelOptions): Promise<RunExit> {
    const how = readCancelOptions(options)
    if (this.#native && this.#state !== 'exited') {
      this.#state = 'exiting'
      await this.#endIt(how)
    }
    return this.wait()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cancel()
  }

  // ---- for adopt only --------------------------------------------------------------------------------------------------

  /** It is ours, and its record says so. */
  taken(native: NativeRun, record: RunRecord): void {
    this.#native = native
    this.record = record
    // Its bot may not have lived to say so.
    if (this.#state === 'starting') this.#state = 'running'
    this.#owner.runs.add(this)
  }

  /** It had ended when nobody owned it, and left word. */
  found(): void {
    this.#ending = (this.record.exit?.ending ?? 'lost') as Ending
    this.#state = 'exited'
    this.#owner.runs.remove(this)
    const exit = exitOfRecord(this.record)
    this.#settle(exit)
    this.#owner.events.tell(this, 'exited', { exit })
  }

  onNative(event: NativeEvent): void {
    switch (event.kind) {
      case 'warning':
        this.#onWarning(event)
        break
      case 'ending':
        this.#state = 'exiting'
        this.#owner.events.tell(this, 'exiting', { reason: event.reason ?? 'lost' })
        break
      case 'exit':
        this.#exitCode = event.code ?? null
        this.#signal = event.signal === undefined ? null : signalName(event.signal)
        break
      case 'extinct':
        if (this.#cancels > 0) this.#heard = event
        else this.#onExtinct(event)
        break
    }
  }

  #onWarning({ deadline = 'overall', limitMs = 0, remainingMs = 0 }: NativeEvent): void {
    this.#owner.events.tell(this, 'deadline-warning', { deadline, limitMs, remainingMs })
  }

  /** Through the registry, which can also end what has no keeper any more. */
  async #endIt(how: How): Promise<void> {
    this.#cancels++
    try {
      const [ended] = await this.#registry.end({ keys: [keyOf(this.record)], ...how })
      if (ended && isLastWord(ended)) this.#finish(ended.ending, exitOfEnded(ended))
    } finally {
      this.#cancels--
      if (this.#heard && this.#cancels === 0) this.#onExtinct(this.#heard)
    }
  }

  #onExtinct(event: NativeEvent): void {
    const ending = event.ending ?? 'lost'
    this.#finish(
      ending,
      describeExit({
        runId: this.runId,
        ending,
        reason: event.reason ?? 'lost',
        exitCode: this.#exitCode,
        signal: this.#signal,
        durationMs: Math.max(0, Date.now() - this.record.startedAt),
        limitMs: event.limitMs ?? 0,
        escaped: event.escaped ?? [],
        survivors: event.survivors ?? [],
      }),
    )
  }

  #finish(ending: Ending, exit: RunExit): void {
    if (this.#state === 'exited') return
    this.#ending = ending
    this.#state = 'exited'
    this.#native?.forget()
    this.#owner.runs.remove(this)
    this.#settle(exit)
    if (exit.escaped.length > 0) this.#owner.events.tell(this, 'escape', { escaped: exit.escaped })
    this.#owner.events.tell(this, 'exited', { exit })
  }
}

/** A keeper tells the end to its owner too, and then the entry is gone already. What was ended from outside says nothing. */
function isLastWord({ outcome, ending, record }: EndedRun): boolean {
  const { keeper, containment } = record
  return outcome !== 'already-exited' && (keeper === undefined || containment === 'job' || ending === 'lost')
}
