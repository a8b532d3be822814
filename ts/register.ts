// `spawn-owned/register`: replaces spawn, fork, exec and execFile of this thread by the owned
// functions, for all callers. See docs/child_process.md.

import { syncBuiltinESMExports } from 'node:module'
import { pathToFileURL } from 'node:url'
import { isMainThread } from 'node:worker_threads'
import type { RunRecord } from '../index.js'
import { exec, execFile, fork, spawn } from './child_process.js'
import { isSameProcess, list, reapOrphans } from './index.js'
import { isBelowKeeper } from './native/addon.js'
import { nodeFork, replaceMembers } from './util/original-child-process.js'
import { isWindows } from './util/windows.js'

/**
 * How a command line or NODE_OPTIONS names this module. Node resolves the name relative to the
 * working directory, and a child can have another one.
 */
const NAMED = /^(--import=|--require=|-r=)?spawn-owned\/register$/
const NAMED_IN_TEXT = /(--import|--require|-r)([= ]\s*)(["']?)spawn-owned\/register\3(?=\s|$)/g

if (replaceMembers({ spawn, fork: isWindows ? forkUnlessInCluster : fork, exec, execFile })) {
  // Updates the named imports of modules that are already loaded.
  syncBuiltinESMExports()
  nameByPath(process.execArgv, process.env)
  if (process.env.SPAWN_OWNED_REAP === '1' && isOutermost()) void reap()
}

/**
 * Forks an owned run, except for the workers of a cluster, on Windows.
 *
 * A cluster sends servers to its workers, and on Windows a server cannot be sent to an owned
 * command. Node starts these workers, and terminates them with the bot. Each worker loads this
 * module too, so it owns the processes that it starts.
 */
function forkUnlessInCluster(...args: Parameters<typeof nodeFork>) {
  const isWorker = args.some((arg) => (arg as { env?: NodeJS.ProcessEnv } | undefined)?.env?.NODE_UNIQUE_ID)
  return isWorker ? nodeFork(...args) : fork(...args)
}

/** Replaces the name of this module by its path, so that children find it from every directory. */
function nameByPath(execArgv: string[], env: NodeJS.ProcessEnv): void {
  const place = (flag?: string) => (flag === '--import' ? pathToFileURL(__filename).href : __filename)
  for (const [index, arg] of execArgv.entries()) {
    if (!NAMED.test(arg)) continue
    const [flag] = arg.startsWith('-') ? arg.split('=') : [execArgv[index - 1]]
    execArgv[index] = arg.replace('spawn-owned/register', () => place(flag))
  }
  const text = env.NODE_OPTIONS
  const changed = text?.replace(NAMED_IN_TEXT, (_, flag, gap) => flag + gap + JSON.stringify(place(flag)))
  if (changed !== text) env.NODE_OPTIONS = changed
}

/**
 * Whether this process is the bot itself. Processes that inherit this module must not reap again.
 */
function isOutermost(): boolean {
  return isMainThread && !isInsideRun(process.env.SPAWN_OWNED_RUN)
}

/**
 * Whether this process belongs to a live run.
 *
 * The cookie alone is no proof: a daemon and its children keep it after the end of the run. So a
 * keeper must be an ancestor, or the registry must have a live run with a key of the cookie.
 */
function isInsideRun(cookie: string | undefined): boolean {
  if (cookie === undefined) return false
  if (isBelowKeeper()) return true
  const elements = new Set(cookie.split(':'))
  const surrounds = ({ cookieKey, startToken, keeper }: RunRecord) =>
    elements.has(`~${cookieKey}`) &&
    [startToken, keeper?.startToken].some((token) => token && isSameProcess(token))
  try {
    return list().some(surrounds)
  } catch {
    // The reap reads the same registry, and reports the error.
    return false
  }
}

/** Reaps in the background. Processes that the bot starts meanwhile are no orphans. */
async function reap(): Promise<void> {
  try {
    await reapOrphans()
  } catch (error) {
    process.emitWarning(error as Error)
  }
}
