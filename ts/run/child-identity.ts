// Finds the process of a ChildProcess by its start token, never by its PID alone.

import { ChildProcess } from 'node:child_process'
import { captureStartToken } from '../native/addon.js'
import { nextTurn } from '../util/timers.js'

/** Start tokens that were captured while the PID certainly belonged to the child. */
const proven = new WeakMap<ChildProcess, string>()

export function isChildProcess(target: unknown): target is ChildProcess {
  return target instanceof ChildProcess
}

/** Whether Node has reaped the child. After that another process can have its PID. */
export function hasExited({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null
}

/** Stores a start token. It must be captured in a tick in which the child had not exited. */
export function rememberToken(child: ChildProcess, token: string): void {
  proven.set(child, token)
}

/**
 * Returns the start token of the child's process, or undefined if it exited before a capture.
 *
 * libuv calls `waitpid` for a child right before it reports the exit. The kernel does not reuse the
 * PID before that call. So while `exitCode` and `signalCode` are null, the PID belongs to the
 * child.
 *
 * There is one exception. If several children have ended, libuv first reaps all of them and then
 * reports one after the other. In an `exit` listener of the first, the PID of the second can be
 * free although its `exitCode` is null. libuv reports all of them within one poll of the event
 * loop. So a child that has not exited in the next turn was not reaped before, and the captured
 * token is its own.
 */
export async function provenToken(child: ChildProcess): Promise<string | undefined> {
  const known = proven.get(child)
  if (known) return known
  const token = capture(child)
  await nextTurn()
  if (!token || hasExited(child)) return proven.get(child)
  proven.set(child, token)
  return token
}

/**
 * Returns the start token in this tick, with the exception above. Never send a signal based on it.
 */
export function presentToken(child: ChildProcess): string | undefined {
  return proven.get(child) ?? capture(child)
}

function capture(child: ChildProcess): string | undefined {
  if (child.pid === undefined || hasExited(child)) return undefined
  return captureStartToken(child.pid) ?? undefined
}
