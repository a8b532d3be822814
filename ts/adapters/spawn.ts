// spawn of `spawn-owned/child_process`: spawnOwned with the default of the drop-ins.

import type { OwnedProcess } from '../../index.js'
import { spawnOwned } from '../index.js'
import { keepDescendants } from './keep-descendants.js'

const start = spawnOwned as (command: unknown, args?: unknown, options?: unknown) => OwnedProcess

export function spawn(command: unknown, args?: unknown, options?: unknown): OwnedProcess {
  if (args != null && !Array.isArray(args)) return start(command, keptIfObject(args))
  return start(command, args, keptIfObject(options))
}

/** Leaves any other value as it is: spawnOwned refuses it with Node's error. */
function keptIfObject(options: unknown): unknown {
  const isObject = typeof options === 'object' && options !== null && !Array.isArray(options)
  return options === undefined || isObject ? keepDescendants(options ?? {}) : options
}
