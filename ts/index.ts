// `spawn-owned`: the main entry point. Its declarations are in index.d.ts at the root.

import type * as Public from '../index.js'
import * as native from './native/addon.js'
import { failedRun } from './run/run-command.js'
import { Supervisor } from './supervisor/supervisor.js'
import { invalidType } from './util/errors.js'
import { checkString, isPid } from './util/validation.js'

export { suspectPatterns } from './orphans/suspect-patterns.js'

let standard: Supervisor | undefined

/**
 * Returns the default supervisor. It is created at the first use, because the path of its registry
 * depends on the current directory.
 */
function supervisor(): Supervisor {
  standard ??= new Supervisor()
  return standard
}

export const spawnOwned = ((command: string, args?: readonly string[], options?: Public.SpawnOwnedOptions) =>
  supervisor().spawnOwned(command, args, options)) as typeof Public.spawnOwned

export const run = ((command: string, args?: unknown, options?: unknown) => {
  let own: Supervisor
  try {
    own = supervisor()
  } catch (error) {
    return failedRun(error, undefined)
  }
  return own.run(command, args as readonly string[], options as Public.RunOptions)
}) as typeof Public.run

// Async functions, so that a supervisor that cannot be created is a rejection, like all other
// errors.
export const cancel: typeof Public.cancel = async (target, options) => supervisor().cancel(target, options)
export const reapOrphans = (async (botPid?: number, options?: Public.ReapOptions) =>
  supervisor().reapOrphans(botPid, options)) as typeof Public.reapOrphans
export const findOrphans: typeof Public.findOrphans = async (options) => supervisor().findOrphans(options)
export const endOrphans: typeof Public.endOrphans = async (options) => supervisor().endOrphans(options)
export const adopt: typeof Public.adopt = async (runId) => supervisor().adopt(runId)
export const ensureService: typeof Public.ensureService = async (options) =>
  supervisor().ensureService(options)
export const stopService: typeof Public.stopService = async (name, options) =>
  supervisor().stopService(name, options)
export const shutdown: typeof Public.shutdown = async (options) => supervisor().shutdown(options)
export const close: typeof Public.close = async (options) => supervisor().close(options)

export const registerProcess: typeof Public.registerProcess = (entry) => supervisor().registerProcess(entry)
export const unregisterProcess: typeof Public.unregisterProcess = (target) =>
  supervisor().unregisterProcess(target)
export const installSignalHandlers: typeof Public.installSignalHandlers = (options) =>
  supervisor().installSignalHandlers(options)
export const watchOrphans: typeof Public.watchOrphans = (options) => supervisor().watchOrphans(options)
export const list: typeof Public.list = (filter) => supervisor().list(filter)

export const survey: typeof Public.survey = async (options) => supervisor().survey(options)
export const history: typeof Public.history = async (filter) => supervisor().history(filter)

export const metrics: typeof Public.metrics = () => supervisor().metrics()
export const metricsText: typeof Public.metricsText = () => supervisor().metricsText()

export const createSupervisor: typeof Public.createSupervisor = (options) => new Supervisor(options)

export const capabilities: typeof Public.capabilities = () => JSON.parse(native.capabilitiesJson())

export const captureStartToken: typeof Public.captureStartToken = (pid) => {
  if (typeof pid !== 'number') throw invalidType('pid', 'of type number', pid)
  // No process has a PID such as -1.
  return isPid(pid) ? native.captureStartToken(pid) : null
}

export const isSameProcess: typeof Public.isSameProcess = (token) => {
  checkString(token, 'token')
  return native.isSameProcess(token)
}
