/** What the kernel says about processes. Read from /proc, not from spawn-owned. */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** `{ pid, start, parent, state }`, or null if there is no such process. */
export function look(pid) {
  const text = readOrNull(`/proc/${pid}/stat`)
  if (text === null) return null
  // The name may contain spaces and parentheses: what counts comes after the last one.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return { pid, state: fields[0], parent: Number(fields[1]), start: fields[19] }
}

/** Whether exactly this process runs: the same number with another start time is somebody else. A zombie is dead. */
export function isAlive({ pid, start }) {
  const now = look(pid)
  return now !== null && now.start === start && now.state !== 'Z' && now.state !== 'X'
}

/** The name a process goes by: how it was called, or else its program. */
export function nameOf(pid) {
  const calledAs = readOrNull(`/proc/${pid}/cmdline`)?.split('\0')[0]
  return calledAs || programOf(pid)
}

export function programOf(pid) {
  return readOrNull(`/proc/${pid}/comm`)?.trim() ?? '?'
}

/** Whether a process was started with this variable in its environment. */
export function carries(pid, pair) {
  return readOrNull(`/proc/${pid}/environ`)?.split('\0').includes(pair) ?? false
}

/** What a process's descriptor refers to, such as `socket:[4711]`. */
export function descriptor(pid, fd) {
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd}`)
  } catch {
    return null
  }
}

export function allPids() {
  return readdirSync('/proc').map(Number).filter(Number.isInteger)
}

function readOrNull(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
