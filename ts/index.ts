// The package's entry point. Its types are index.d.ts at the repository's root.

import type * as Public from '../index.js'
import { checkPid, checkString } from './checks.js'
import * as native from './native.js'
import { Supervisor } from './supervisor.js'

export { suspectPatterns } from './patterns.js'

let standard: Supervisor | undefined

/** The supervisor of those who need only one. Made when it is first used: where its registry is depends on the directory. */
function supervisor(): Supervisor {
  standard ??= new Supervisor()
  return standard
}

export const spawnOwned = ((command: string, args?: readonly string[], options?: Public.SpawnOwnedOptions) =>
  supervisor().spawnOwned(command, args, options)) as typeof Public.spawnOwned

// Rejections, not exceptions, even if there can be no supervisor: callers have one place to look.
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

export const registerProcess: typeof Public.registerProcess = (entry) => supervisor().registerProcess(entry)
export const unregisterProcess: typeof Public.unregisterProcess = (target) =>
  supervisor().unregisterProcess(target)
export const installSignalHandlers: typeof Public.installSignalHandlers = (options) =>
  supervisor().installSignalHandlers(options)
export const watchOrphans: typeof Public.watchOrphans = (options) => supervisor().watchOrphans(options)
export const list: typeof Public.list = (filter) => supervisor().list(filter)

export const survey: typeof Public.survey = async (filter) => supervisor().survey(filter)

export const metrics: typeof Public.metrics = () => supervisor().metrics()
export const metricsText: typeof Public.metricsText = () => supervisor().metricsText()

export const createSupervisor: typeof Public.createSupervisor = (options) => new Supervisor(options)

export const capabilities: typeof Public.capabilities = () => JSON.parse(native.offers())

export const captureStartToken: typeof Public.captureStartToken = (pid) => {
  checkPid(pid, 'pid')
  return native.captureStartToken(pid)
}

export const isSameProcess: typeof Public.isSameProcess = (token) => {
  checkString(token, 'token')
  return native.isSameProcess(token)
}
