// Node's own child_process, also when a hook has put ours in its place.

import child_process from 'node:child_process'

type Name = 'spawn' | 'fork' | 'exec' | 'execFile'
type Members = Pick<typeof child_process, Name>

/** Known to every copy of us that may be loaded: the next one must find Node's functions too, not those of this one. */
const KEPT = Symbol.for('spawn-owned.nodes-own')

const module = child_process as typeof child_process & { [KEPT]?: Members }

/** As it was when we were loaded: a bot may replace it by ours later. */
export const { spawn: nodeSpawn, fork: nodeFork } = module[KEPT] ?? module

/** Puts these in the place of Node's, which are kept. Returns whether it did: who comes second finds that it was done. */
export function replaceMembers(members: Record<Name, (...args: never[]) => unknown>): boolean {
  if (module[KEPT]) return false
  const { spawn, fork, exec, execFile } = module
  Object.defineProperty(module, KEPT, { value: { spawn, fork, exec, execFile } })
  Object.assign(module, members)
  return true
}
