/** What Linux reports about processes and threads: independent of the library under test. */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { basename } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

export function availableMb() {
  return Number(/^MemAvailable:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))[1]) / 1024
}

/** Share of all CPUs, 0 to 1, that was used during this time. */
export async function busyShare(ms) {
  const before = cpuTicks()
  await delay(ms)
  const after = cpuTicks()
  return 1 - (after.idle - before.idle) / Math.max(1, after.all - before.all)
}

function cpuTicks() {
  const [, ...ticks] = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0].split(/\s+/).map(Number)
  // user, nice, system, idle, iowait, irq, softirq, steal. user and nice contain the remaining
  // fields.
  return { idle: ticks[3] + ticks[4], all: sum(ticks.slice(0, 8)) }
}

/** `{ state, parent }`, or null when there is no such process. */
export function processStat(pid) {
  const text = readOrNull(`/proc/${pid}/stat`)
  if (text === null) return null
  // comm may contain spaces and parentheses, so parse after the last one.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return { state: fields[0], parent: Number(fields[1]) }
}

/** A zombie no longer runs. */
export function isAlive(pid) {
  const stat = processStat(pid)
  return stat !== null && stat.state !== 'Z' && stat.state !== 'X'
}

export function executableName(pid) {
  try {
    return basename(readlinkSync(`/proc/${pid}/exe`))
  } catch {
    return null
  }
}

/**
 * Helper processes of a bot: the keepers of these commands, and all others of the same executable
 * above and beside them (zygotes and spare keepers).
 */
export function helpersOf(botPid, commandPids) {
  const keepers = new Set(commandPids.map((pid) => processStat(pid)?.parent))
  keepers.delete(undefined)
  keepers.delete(botPid)
  const [first] = keepers
  if (first === undefined) return { keepers: [], others: [] }
  const executable = executableName(first)
  const tops = new Set([...keepers].map((pid) => processStat(pid)?.parent))
  const family = [...tops].filter((pid) => executableName(pid) === executable)
  for (const pid of family)
    family.push(...childrenOf(pid).filter((child) => executableName(child) === executable))
  return { keepers: [...keepers], others: family.filter((pid) => !keepers.has(pid)) }
}

function childrenOf(pid) {
  const list = readOrNull(`/proc/${pid}/task/${pid}/children`) ?? ''
  return list.split(' ').filter(Boolean).map(Number)
}

/** A field of smaps_rollup in kB. */
export function memoryKb(pid, field = 'Pss') {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(text)[1])
}

export function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0)
}

/** Thread id → `{ name, cpuMs, switches }` of every thread of a process. */
export function threads(pid) {
  const found = new Map()
  for (const tid of readdirSync(`/proc/${pid}/task`)) {
    const base = `/proc/${pid}/task/${tid}`
    const status = readOrNull(`${base}/status`)
    const schedstat = readOrNull(`${base}/schedstat`)
    if (status === null || schedstat === null) continue
    found.set(tid, {
      name: /^Name:\s+(.*)$/m.exec(status)[1],
      cpuMs: Number(schedstat.split(' ')[0]) / 1e6,
      switches: Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)[1]),
    })
  }
  return found
}

function readOrNull(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}

/** The anonymous memory of this process after garbage collection; needs `--expose-gc`. */
export async function anonymousKb() {
  for (let i = 0; i < 3; i++) {
    global.gc()
    await delay(50)
  }
  return memoryKb(process.pid, 'Pss_Anon')
}
