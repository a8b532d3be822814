/** Controls which PID the next process of the namespace gets. */

import { existsSync, writeFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { quietly } from './witness.mjs'

const FREE_MS = 500

/** Waits until no process has the PID, for a limited time. A zombie still has its PID. */
export async function isFree(pid) {
  const giveUpAt = performance.now() + FREE_MS
  while (existsSync(`/proc/${pid}`) && performance.now() < giveUpAt) await delay(1)
  return !existsSync(`/proc/${pid}`)
}

/** Fails silently while there are no free PIDs: the kernel refuses the write. */
export const takeNext = (pid) => quietly(() => writeFileSync('/proc/sys/kernel/ns_last_pid', String(pid - 1)))
