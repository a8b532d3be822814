// installSignalHandlers: a bot that is told to go shuts down first.

import type { SignalHandlerOptions } from '../index.js'
import { checkOptions, flag } from './checks.js'
import { codedError, invalidType, invalidValue } from './errors.js'
import type { Owner } from './owner.js'
import { isMainThread } from './runtimes.js'
import { hasSomethingToEnd, readShutdownOptions, shutdown, type Wish } from './shutdown.js'
import { signalName, signalNumber } from './signals.js'

const DEFAULT_SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP']

interface Settings extends Wish {
  signals: readonly NodeJS.Signals[]
  exit: boolean
}

const installed = new WeakMap<Owner, Handlers>()

/** Once for each supervisor: a second call has new options, not a second set of handlers. */
export function installSignalHandlers(owner: Owner, options?: SignalHandlerOptions): () => void {
  const settings = readOptions(options)
  refuseInWorker()
  const handlers = installed.get(owner) ?? new Handlers(owner)
  installed.set(owner, handlers)
  handlers.install(settings)
  return () => handlers.uninstall()
}

/** Ours stand beside those of the bot, which are called as ever. */
class Handlers {
  #owner: Owner
  #settings: Settings | undefined
  /** A signal has begun a shutdown that is not over. */
  #ending = false

  constructor(owner: Owner) {
    this.#owner = owner
  }

  install(settings: Settings): void {
    this.uninstall()
    this.#settings = settings
    for (const signal of settings.signals) process.on(signal, this.#onSignal)
    process.on('beforeExit', this.#onBeforeExit)
  }

  /** What has begun goes on. */
  uninstall(): void {
    for (const signal of this.#settings?.signals ?? []) process.off(signal, this.#onSignal)
    process.off('beforeExit', this.#onBeforeExit)
    this.#settings = undefined
  }

  #onSignal = (signal: NodeJS.Signals): void => {
    if (!this.#settings) return
    const { exit, ...wish } = this.#settings
    if (this.#ending) {
      // Somebody has lost patience.
      shutdown(this.#owner, { ...wish, graceMs: 0 }).catch(() => {})
      return
    }
    this.#ending = true
    const over = shutdown(this.#owner, wish).finally(() => {
      this.#ending = false
    })
    exitAfter(over, exit ? 128 + signalNumber(signal) : undefined)
  }

  /**
   * The event loop has nothing left to do, but runs that were unref'ed live. To end them is something to do, so this is called
   * again when they are gone; what could not be ended must not make that go on for ever.
   */
  #onBeforeExit = (): void => {
    if (!this.#settings || !hasSomethingToEnd(this.#owner, this.#settings.leaveKept)) return
    const giveUp = () => process.off('beforeExit', this.#onBeforeExit)
    shutdown(this.#owner, this.#settings).then(({ exits, survivors }) => {
      // Nothing more can be done, or there was nothing to be done after all.
      if (survivors.length > 0 || exits.length === 0) giveUp()
    }, giveUp)
  }
}

let underWay = 0
let exitCode: number | undefined

/** Several supervisors may have handlers: the last one to be done turns off the light, with the code of the first signal. */
function exitAfter(over: Promise<unknown>, code: number | undefined): void {
  underWay++
  exitCode ??= code
  over
    .catch(() => {})
    .then(() => {
      if (--underWay === 0 && exitCode !== undefined) process.exit(exitCode)
    })
}

/** Unless they say otherwise, runs that are to outlive the bot do: that it is told to go is just what they are kept for. */
function readOptions(options: SignalHandlerOptions | undefined): Settings {
  checkOptions(options)
  const { graceMs, leaveKept = true, exit = true, signals } = options ?? {}
  return {
    ...readShutdownOptions({ graceMs, leaveKept }),
    exit: flag(exit, 'options.exit'),
    signals: readSignals(signals),
  }
}

function readSignals(signals: unknown): readonly NodeJS.Signals[] {
  if (signals === undefined) return DEFAULT_SIGNALS
  if (!Array.isArray(signals)) throw invalidType('options.signals', 'an array of signal names', signals)
  const names = signals.map((signal: unknown, index) => {
    const name = `options.signals[${index}]`
    if (typeof signal !== 'string') throw invalidType(name, 'the name of a signal', signal)
    const known = signalName(signalNumber(signal))
    if (known === 'SIGKILL' || known === 'SIGSTOP')
      throw invalidValue(name, signal, 'cannot be handled by any process; leave it out')
    return known
  })
  return [...new Set(names)]
}

/** Node tells signals to the main thread only. */
function refuseInWorker(): void {
  if (isMainThread()) return
  throw codedError(
    Error,
    'ERR_OWNED_NOT_MAIN_THREAD',
    'installSignalHandlers was called in a worker, which never hears of signals. Call it in the main thread, and shutdown() here when that says so.',
  )
}
