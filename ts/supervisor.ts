// The public face of an owner.

import { EventEmitter } from 'node:events'
import type * as Public from '../index.js'
import { adopt } from './adopt.js'
import { cancel } from './cancel.js'
import { matchingOrAll } from './filters.js'
import { endOrphans, findOrphans } from './orphans.js'
import { Owner } from './owner.js'
import { reap } from './reap.js'
import { register, unregister } from './register.js'
import { ensureService, stopService } from './service.js'
import { readShutdownOptions, shutdown } from './shutdown.js'
import { installSignalHandlers } from './signal-handlers.js'
import { spawn } from './spawn.js'
import { watchOrphans } from './watch-orphans.js'

/** Methods are bound, so that `const { spawnOwned } = createSupervisor()` does what it says. */
export class Supervisor extends EventEmitter implements Public.Supervisor {
  static override readonly name = 'Supervisor'
  readonly #owner: Owner

  constructor(options?: Public.SupervisorOptions) {
    super()
    this.#owner = new Owner(options, this)
  }

  get instanceId(): string {
    return this.#owner.instanceId
  }

  get registryPath(): string {
    return this.#owner.registryPath
  }

  readonly spawnOwned = ((command: unknown, args?: unknown, options?: unknown) =>
    spawn(this.#owner, command, args, options)) as unknown as typeof Public.spawnOwned

  readonly cancel = (target: Public.RunTarget, options?: Public.CancelOptions) =>
    cancel(this.#owner, target, options)

  readonly registerProcess = (entry: Public.RegisterEntry) => register(this.#owner, entry)

  readonly unregisterProcess = (target: Public.RunTarget) => unregister(this.#owner, target)

  readonly reapOrphans: typeof Public.reapOrphans = (botPid?: unknown, options?: unknown) =>
    reap(this.#owner, botPid, options)

  readonly reconcileOrphans = this.reapOrphans

  readonly findOrphans = (options?: Public.FindOrphansOptions) => findOrphans(this.#owner, options)

  readonly endOrphans = (options?: Public.EndOrphansOptions) => endOrphans(this.#owner, options)

  readonly watchOrphans = (options?: Public.WatchOptions) => watchOrphans(this.#owner, options)

  readonly list = (filter?: Public.RunFilter) => {
    const matches = matchingOrAll(filter)
    return this.#owner.registry.list(filter).filter((record) => record.state !== 'exited' && matches(record))
  }

  readonly survey = async (filter?: Public.RunFilter) => {
    const matches = matchingOrAll(filter)
    const surveyed = await this.#owner.registry.survey()
    return surveyed.filter(({ record }) => record.state !== 'exited' && matches(record))
  }

  readonly adopt = (runId: string) => adopt(this.#owner, runId)

  readonly ensureService = (options: Public.ServiceOptions) => ensureService(this.#owner, options)

  readonly stopService = (name: string, options?: Public.CancelOptions) =>
    stopService(this.#owner, name, options)

  readonly shutdown = async (options?: Public.ShutdownOptions) =>
    shutdown(this.#owner, readShutdownOptions(options))

  readonly installSignalHandlers = (options?: Public.SignalHandlerOptions) =>
    installSignalHandlers(this.#owner, options)

  readonly metrics = () => this.#owner.registry.metrics()

  readonly metricsText = () => this.#owner.registry.metricsText()
}
