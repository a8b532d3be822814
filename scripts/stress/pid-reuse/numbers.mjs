/** Chooses the PID of the next process of this namespace. */

import { existsSync, writeFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { Wrong } from '../lib/loop.mjs'

export function continueAt(pid) {
  writeFileSync('/proc/sys/kernel/ns_last_pid', String(pid - 1))
}

/** Starts a process with this PID; `start` returns a ChildProcess. */
export function startAs(pid, start) {
  continueAt(pid)
  const child = start()
  if (child.pid !== pid) {
    child.kill('SIGKILL')
    throw new Wrong(`wanted PID ${pid}, got ${child.pid}`)
  }
  return child
}

/** Kills the process and waits until its PID is free: until its parent or init has reaped it. */
export async function killAndFree(pid) {
  process.kill(pid, 'SIGKILL')
  await free(pid)
}

export async function free(pid) {
  const giveUpAt = performance.now() + 5000
  while (existsSync(`/proc/${pid}`)) {
    if (performance.now() > giveUpAt) throw new Wrong(`PID ${pid} does not become free`)
    await delay(1)
  }
}
