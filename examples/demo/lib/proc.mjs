/** Reads process information from /proc. It does not use spawn-owned. */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** `{ pid, start, parent, state }`, or null if there is no such process. */
export function look(pid) {
  const text = readOrNull(`/proc/${pid}/stat`)
  if (text === null) return null
  // The process name may contain spaces and parentheses: parse after the last parenthesis.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return { pid, state: fields[0], parent: Number(fields[1]), start: fields[19] }
}

/** Whether this process runs. A reused PID has another start time. A zombie counts as dead. */
export function isAlive({ pid, start }) {
  const now = look(pid)
  return now !== null && now.start === start && now.state !== 'Z' && now.state !== 'X'
}

/** The name of a process: argv[0], or else its program. */
export function nameOf(pid) {
  const argv0 = readOrNull(`/proc/${pid}/cmdline`)?.split('\0')[0]
  return argv0 || programOf(pid)
}

export function programOf(pid) {
  return readOrNull(`/proc/${pid}/comm`)?.trim() ?? '?'
}

/** Whether a process was started with this variable in its environment. */
export function carries(pid, pair) {
  return readOrNull(`/proc/${pid}/environ`)?.split('\0').includes(pair) ?? false
}

/** The target of a process's file descriptor, such as `socket:[4711]`. */
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
