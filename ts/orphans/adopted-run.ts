// AdoptedRun: a run whose bot is gone, and that this supervisor owns now. It has no streams.

import type { CancelOptions, RunExit, RunRecord, RunState } from '../../index.js'
import type { NativeEnd, NativeEvent, NativeRun } from '../native/addon.js'
import { endedRecord, endedRun } from '../registry/ended-run.js'
import { exitOfEnded, exitOfRecord, isKept } from '../registry/record-exit.js'
import { type EndedRun, keyOf, type Registry } from '../registry/registry.js'
import { type CancelSettings, readCancelOptions } from '../run/cancel-options.js'
import { describeExit, type Ending } from '../run/run-exit.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { epochMs } from '../util/timers.js'

export class AdoptedRun {
  static readonly name = 'AdoptedRun'

  readonly runId: string
  readonly pid: number
  readonly startToken: string | null
  record: RunRecord
  readonly sessionId: string | undefined
  readonly scopeKey: string | undefined
  readonly service: string | undefined
  readonly labels: Readonly<Record<string, string>>

  #context: SupervisorContext
  #registry: Registry
  #native: NativeRun | undefined
  #state: RunState
  #ending: Ending | undefined
  /** Cancels in progress. */
  #cancels = 0
  /**
   * The end that was reported during a cancel. Without a keeper, that report does not know the
   * cancel.
   */
  #pendingEnd: NativeEnd | undefined
  #end: Promise<RunExit>
  #settle!: (exit: RunExit) => void

  constructor(record: RunRecord, context: SupervisorContext) {
    this.runId = record.runId
    this.pid = record.pid
    this.startToken = record.startToken
    this.record = record
    this.sessionId = record.sessionId ?? undefined
    this.scopeKey = record.scopeKey
    this.service = record.service
    this.labels = record.labels ?? {}
    this.#context = context
    this.#registry = context.writing()
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

  /** Whether the run outlives this bot too. */
  get isKept(): boolean {
    return isKept(this.record)
  }

  /** Resolves at the end of the run. The run keeps the event loop alive from now on. */
  wait(): Promise<RunExit> {
    this.#native?.keepAlive(true)
    return this.#end
  }

  async cancel(options?: CancelOptions): Promise<RunExit> {
    const settings = readCancelOptions(options)
    if (this.#native && this.#state !== 'exited') {
      this.#state = 'exiting'
      await this.#terminate(settings)
    }
    return this.wait()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cancel()
  }

  // ---- for adopt only ---------------------------------------------------------------------------

  /** Called when the run is adopted and its record names this supervisor. */
  attached(native: NativeRun, record: RunRecord): void {
    this.#native = native
    this.record = record
    // The bot may have died before it recorded the state `running`.
    if (this.#state === 'starting') this.#state = 'running'
    this.#context.runs.add(this)
  }

  /** Called when the run ended without an owner, and its keeper recorded the end. */
  hadEnded(): void {
    this.#ending = (this.record.exit?.ending ?? 'lost') as Ending
    this.#state = 'exited'
    this.#context.runs.remove(this)
    const exit = exitOfRecord(this.record)
    this.#context.history?.add([endedRecord(this.record)])
    this.#settle(exit)
    this.#context.events.emitRun(this, 'exited', { exit })
  }

  onNative(event: NativeEvent): void {
    switch (event.kind) {
      case 'warning':
        this.#onWarning(event)
        break
      case 'ending':
        this.#state = 'exiting'
        this.#context.events.emitRun(this, 'exiting', { reason: event.reason ?? 'lost' })
        break
      case 'extinct':
        if (this.#cancels > 0) this.#pendingEnd = event.end
        else if (event.end) this.#onExtinct(event.end)
        break
    }
  }

  #onWarning({ deadline = 'overall', limitMs = 0, remainingMs = 0 }: NativeEvent): void {
    this.#context.events.emitRun(this, 'deadline-warning', { deadline, limitMs, remainingMs })
  }

  /** Terminates the run through the registry, which can also terminate a run without a keeper. */
  async #terminate(settings: CancelSettings): Promise<void> {
    this.#cancels++
    try {
      const [ended] = await this.#registry.end({ keys: [keyOf(this.record)], ...settings })
      if (ended && isFinal(ended)) this.#finish(ended.ending, exitOfEnded(ended))
    } finally {
      this.#cancels--
      if (this.#pendingEnd && this.#cancels === 0) this.#onExtinct(this.#pendingEnd)
    }
  }

  #onExtinct(end: NativeEnd): void {
    const durationMs = Math.max(0, epochMs() - this.record.startedAt)
    this.#finish(end.ending, describeExit({ ...end, runId: this.runId, durationMs }))
  }

  #finish(ending: Ending, exit: RunExit): void {
    if (this.#state === 'exited') return
    this.#ending = ending
    this.#state = 'exited'
    this.#native?.forget()
    this.#context.runs.remove(this)
    this.#context.history?.add([endedRun(this.record, exit)])
    this.#settle(exit)
    if (exit.escaped.length > 0) this.#context.events.emitRun(this, 'escape', { escaped: exit.escaped })
    this.#context.events.emitRun(this, 'exited', { exit })
  }
}

/**
 * Whether no event about the end follows.
 *
 * A live keeper reports the end to its owner too. A tree that was terminated from outside has no
 * keeper that could report it.
 */
function isFinal({ outcome, ending, record }: EndedRun): boolean {
  const { keeper, containment } = record
  return outcome !== 'already-exited' && (keeper === undefined || containment === 'job' || ending === 'lost')
}
