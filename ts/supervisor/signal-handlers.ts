// installSignalHandlers: shuts the supervisor down before a signal ends the bot.

import type { SignalHandlerOptions } from '../../index.js'
import { codedError, invalidType, invalidValue } from '../util/errors.js'
import { SIGNAL_HANDLERS } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { isMainThread } from '../util/runtimes.js'
import { signalName, signalNumber } from '../util/signals.js'
import { flag } from '../util/validation.js'
import { hasSomethingToEnd, readShutdownOptions, type ShutdownSettings, shutdown } from './shutdown.js'
import type { SupervisorContext } from './supervisor-context.js'

const DEFAULT_SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP']

interface Settings extends ShutdownSettings {
  signals: readonly NodeJS.Signals[]
  exit: boolean
}

const installed = new WeakMap<SupervisorContext, Handlers>()

/** Installs the handlers, once per supervisor: a second call replaces the options. */
export function installSignalHandlers(
  context: SupervisorContext,
  options?: SignalHandlerOptions,
): () => void {
  const settings = readSettings(options)
  refuseInWorker()
  const handlers = installed.get(context) ?? new Handlers(context)
  installed.set(context, handlers)
  handlers.install(settings)
  return () => handlers.uninstall()
}

/** The signal handlers of one supervisor. The bot's own handlers still run. */
class Handlers {
  #context: SupervisorContext
  #settings: Settings | undefined
  /** A signal has started a shutdown that is in progress. */
  #ending = false

  constructor(context: SupervisorContext) {
    this.#context = context
  }

  install(settings: Settings): void {
    this.uninstall()
    this.#settings = settings
    this.#context.cleanups.add(this.#cleanup)
    for (const signal of settings.signals) process.on(signal, this.#onSignal)
    process.on('beforeExit', this.#onBeforeExit)
  }

  /** Removes the handlers. A shutdown in progress continues. */
  uninstall(): void {
    for (const signal of this.#settings?.signals ?? []) process.off(signal, this.#onSignal)
    process.off('beforeExit', this.#onBeforeExit)
    this.#context.cleanups.delete(this.#cleanup)
    this.#settings = undefined
  }

  #cleanup = (): void => this.uninstall()

  #onSignal = (signal: NodeJS.Signals): void => {
    if (!this.#settings) return
    const { exit, ...settings } = this.#settings
    if (this.#ending) {
      // A second signal means: do not wait for the grace.
      shutdown(this.#context, { ...settings, graceMs: 0 }).catch(() => {})
      return
    }
    this.#ending = true
    const done = shutdown(this.#context, settings).finally(() => {
      this.#ending = false
    })
    exitAfter(done, exit ? 128 + signalNumber(signal) : undefined)
  }

  /**
   * Terminates the runs that were unref'ed, when the event loop has nothing left to do.
   *
   * The shutdown is work for the event loop, so Node emits `beforeExit` again after it. The handler
   * removes itself if a process survives, because it would run forever.
   */
  #onBeforeExit = (): void => {
    if (!this.#settings || !hasSomethingToEnd(this.#context, this.#settings.leaveKept)) return
    const giveUp = () => process.off('beforeExit', this.#onBeforeExit)
    shutdown(this.#context, this.#settings).then(({ exits, survivors }) => {
      // A survivor is left that cannot be killed, or there was nothing to terminate.
      if (survivors.length > 0 || exits.length === 0) giveUp()
    }, giveUp)
  }
}

let inProgress = 0
let exitCode: number | undefined

/**
 * Exits the bot after a shutdown.
 *
 * Several supervisors can have handlers. The last shutdown exits, with the code of the first
 * signal.
 */
function exitAfter(done: Promise<unknown>, code: number | undefined): void {
  inProgress++
  exitCode ??= code
  done
    .catch(() => {})
    .then(() => {
      if (--inProgress === 0 && exitCode !== undefined) process.exit(exitCode)
    })
}

/** Reads the options. By default, kept runs survive: they exist to outlive the bot. */
function readSettings(options: SignalHandlerOptions | undefined): Settings {
  const given = readOptions(options, SIGNAL_HANDLERS, { of: 'installSignalHandlers' })
  const { graceMs, leaveKept = true, exit = true, signals } = given
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
      throw invalidValue(name, signal, 'cannot be handled by any process. Remove it')
    return known
  })
  return [...new Set(names)]
}

/** Throws in a worker: Node delivers signals to the main thread only. */
function refuseInWorker(): void {
  if (isMainThread()) return
  throw codedError(
    Error,
    'ERR_OWNED_NOT_MAIN_THREAD',
    'installSignalHandlers was called in a worker, and Node delivers signals to the main thread only. ' +
      'Call it in the main thread, and call shutdown() in the worker when the main thread tells it to.',
  )
}
