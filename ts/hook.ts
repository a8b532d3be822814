// `spawn-owned/register`: every spawn, fork, exec and execFile of this thread is owned from here on, whoever calls it, with no change in
// the caller. See docs/child_process.md.

import { syncBuiltinESMExports } from 'node:module'
import { pathToFileURL } from 'node:url'
import { isMainThread } from 'node:worker_threads'
import { exec, execFile, fork, spawn } from './child_process.js'
import { reapOrphans } from './index.js'
import { nodeFork, replaceMembers } from './nodes-own.js'
import { isWindows } from './windows.js'

/** How a command line or NODE_OPTIONS names us. Relative to the working directory, which a child need not share. */
const NAMED = /^(--import=|--require=|-r=)?spawn-owned\/register$/
const NAMED_IN_TEXT = /(--import|--require|-r)([= ]\s*)(["']?)spawn-owned\/register\3(?=\s|$)/g

if (replaceMembers({ spawn, fork: isWindows ? forkUnlessInCluster : fork, exec, execFile })) {
  // What was imported before, by name, follows.
  syncBuiltinESMExports()
  nameByPath(process.execArgv, process.env)
  if (process.env.SPAWN_OWNED_REAP === '1' && isOutermost()) void reap()
}

/**
 * No server can be sent to an owned command on Windows, and that is what a cluster does. Its workers are left to Node, which ends them with
 * the bot there; each is hooked and owns what it starts.
 */
function forkUnlessInCluster(...args: Parameters<typeof nodeFork>) {
  const isWorker = args.some((arg) => (arg as { env?: NodeJS.ProcessEnv } | undefined)?.env?.NODE_UNIQUE_ID)
  return isWorker ? nodeFork(...args) : fork(...args)
}

/** Children that are given our arguments or our environment find us from every directory. */
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

/** What inherits the hook need not do again what the bot has done. */
function isOutermost(): boolean {
  return isMainThread && process.env.SPAWN_OWNED_RUN === undefined
}

/** The bot need not wait for it: what it starts meanwhile is nobody's orphan. */
async function reap(): Promise<void> {
  try {
    await reapOrphans()
  } catch (error) {
    process.emitWarning(error as Error)
  }
}
