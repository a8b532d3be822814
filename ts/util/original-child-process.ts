// The original functions of Node's child_process, also after `spawn-owned/register` replaced them.

import child_process from 'node:child_process'

type Name = 'spawn' | 'fork' | 'exec' | 'execFile'
type Members = Pick<typeof child_process, Name>

/**
 * The property of `child_process` that stores the original functions.
 *
 * The symbol is global, because a bot can load several copies of this package. The next copy must
 * find Node's functions, not the functions of the first copy.
 */
const KEPT = Symbol.for('spawn-owned.nodes-own')

const module = child_process as typeof child_process & { [KEPT]?: Members }

/** Node's functions, read when this file is loaded: a bot can replace them later. */
export const { spawn: nodeSpawn, fork: nodeFork } = module[KEPT] ?? module

/**
 * Replaces functions of `child_process` and stores the originals.
 *
 * Returns false if another copy of this package already replaced them.
 */
export function replaceMembers(members: Record<Name, (...args: never[]) => unknown>): boolean {
  if (module[KEPT]) return false
  const { spawn, fork, exec, execFile } = module
  Object.defineProperty(module, KEPT, { value: { spawn, fork, exec, execFile } })
  Object.assign(module, members)
  return true
}
