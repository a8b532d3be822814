// Supervisor: the public class.

import { EventEmitter } from 'node:events'
import type * as Public from '../../index.js'
import { adopt } from '../orphans/adopt.js'
import { endOrphans, findOrphans } from '../orphans/find-and-end.js'
import { reap } from '../orphans/reap.js'
import { watchOrphans } from '../orphans/watch-orphans.js'
import { history } from '../registry/history.js'
import { register, unregister } from '../registry/register-process.js'
import { nested, readSurveyOptions } from '../registry/survey.js'
import { cancel } from '../run/cancel.js'
import { run } from '../run/run-command.js'
import { isRecordedEnd, matching, readFilter } from '../run/run-filters.js'
import { spawn } from '../run/spawn.js'
import { ensureService, stopService } from '../service/ensure-service.js'
import { close } from './close.js'
import { readShutdownOptions, shutdown } from './shutdown.js'
import { installSignalHandlers } from './signal-handlers.js'
import { SupervisorContext } from './supervisor-context.js'

/**
 * A supervisor. Its methods are bound, so that `const { spawnOwned } = createSupervisor()` works.
 */
export class Supervisor extends EventEmitter implements Public.Supervisor {
  static override readonly name = 'Supervisor'
  readonly #context: SupervisorContext

  constructor(options?: Public.SupervisorOptions) {
    super()
    this.#context = new SupervisorContext(options, this)
  }

  get instanceId(): string {
    return this.#context.instanceId
  }

  get registryPath(): string {
    return this.#context.registryPath
  }

  /** The context, for every method except `close`. Throws if the supervisor is closed. */
  get #open(): SupervisorContext {
    this.#context.refuseWhenClosed()
    return this.#context
  }

  readonly spawnOwned = ((command: unknown, args?: unknown, options?: unknown) =>
    spawn(this.#open, command, args, options)) as unknown as typeof Public.spawnOwned

  readonly run = ((command: unknown, args?: unknown, options?: unknown) =>
    run(() => this.#open, command, args, options)) as unknown as typeof Public.run

  readonly cancel = async (target: Public.RunTarget, options?: Public.CancelOptions) =>
    cancel(this.#open, target, options)

  readonly registerProcess = (entry: Public.RegisterEntry) => register(this.#open, entry)

  readonly unregisterProcess = (target: Public.RunTarget) => unregister(this.#open, target)

  readonly reapOrphans: typeof Public.reapOrphans = async (botPid?: unknown, options?: unknown) =>
    reap(this.#open, botPid, options)

  readonly reconcileOrphans = this.reapOrphans

  readonly findOrphans = async (options?: Public.FindOrphansOptions) => findOrphans(this.#open, options)

  readonly endOrphans = async (options?: Public.EndOrphansOptions) => endOrphans(this.#open, options)

  readonly watchOrphans = (options?: Public.WatchOptions) => watchOrphans(this.#open, options)

  readonly list = (filter?: Public.RunFilter) => {
    const wanted = readFilter(filter, 'list')
    const matches = matching(wanted)
    return this.#open.registry.present(wanted).filter((record) => !isRecordedEnd(record) && matches(record))
  }

  readonly survey = async (options?: Public.SurveyOptions) => {
    const { tree, ...filter } = readSurveyOptions(options)
    const matches = matching(filter)
    const surveyed = await this.#open.registry.survey()
    const found = surveyed.filter(({ record }) => !isRecordedEnd(record) && matches(record))
    return tree ? found.map((run) => ({ ...run, members: nested(run.members) })) : found
  }

  readonly history = async (filter?: Public.HistoryFilter) => history(this.#open, filter)

  readonly adopt = async (runId: string) => adopt(this.#open, runId)

  readonly ensureService = async (options: Public.ServiceOptions) => ensureService(this.#open, options)

  readonly stopService = async (name: string, options?: Public.CancelOptions) =>
    stopService(this.#open, name, options)

  readonly shutdown = async (options?: Public.ShutdownOptions) =>
    shutdown(this.#open, readShutdownOptions(options))

  readonly close = (options?: Public.ShutdownOptions) => close(this.#context, options);

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  readonly installSignalHandlers = (options?: Public.SignalHandlerOptions) =>
    installSignalHandlers(this.#open, options)

  readonly metrics = () => this.#open.registry.metrics()

  readonly metricsText = () => this.#open.registry.metricsText()
}
