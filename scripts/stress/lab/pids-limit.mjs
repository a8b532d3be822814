/**
 * A cgroup of the pids controller for each round. Where the lab cannot create one, steps that need
 * it are skipped.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { quietly } from './witness.mjs'

const EMPTY_MS = 5000
const PREFIX = 'spawn-owned-lab-'
const place = process.platform === 'linux' ? quietly(findPlace) : undefined
if (place) quietly(sweep)
const trial = place && quietly(() => make('trial'))
if (trial) rmdirSync(trial)

/** Why there is no cgroup, or undefined. */
export const unlimited = trial ? undefined : whyNot()

let count = 0
/** The directory of a new cgroup, or undefined. */
export const makePidsLimit = () => (trial ? make(String(count++)) : undefined)

/** Removes the cgroup. Waits, because its processes are dead but may not have been reaped. */
export async function removePidsLimit(directory) {
  const giveUpAt = performance.now() + EMPTY_MS
  while (!quietly(() => rmdirSync(directory) ?? true) && performance.now() < giveUpAt) await delay(5)
}

function make(name) {
  const directory = join(place, `${PREFIX}${process.pid}-${name}`)
  mkdirSync(directory)
  if (existsSync(join(directory, 'pids.max'))) return directory
  rmdirSync(directory)
  return undefined
}

/**
 * Removes what an interrupted lab left. The kernel refuses to remove a cgroup that contains
 * processes.
 */
function sweep() {
  for (const name of readdirSync(place).filter((it) => it.startsWith(PREFIX)))
    if (!existsSync(`/proc/${name.slice(PREFIX.length).split('-')[0]}`))
      quietly(() => rmdirSync(join(place, name)))
}

/** The lab's own cgroup: in the v1 hierarchy of the pids controller if there is one, else in v2. */
function findPlace() {
  if (existsSync('/run/systemd/system')) return undefined
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n')
  const own = readFileSync('/proc/self/cgroup', 'utf8').split('\n')
  const directory = (isMount, isOwn) => {
    const [, , , from, to] = mounts.find(isMount)?.split(' ') ?? []
    const path = own.find(isOwn)?.split(':')[2]
    return from === '/' && path !== undefined ? join(to, path) : undefined
  }
  return (
    directory(
      (line) => / - cgroup .*\bpids\b/.test(line),
      (line) => /^\d+:(?:.*,)?pids[,:]/.test(line),
    ) ??
    directory(
      (line) => line.includes(' - cgroup2 '),
      (line) => line.startsWith('0::'),
    )
  )
}

function whyNot() {
  if (existsSync('/run/systemd/system')) return 'systemd manages the cgroups here'
  return place
    ? `cannot create a cgroup with a pids limit in ${place}`
    : 'the cgroup of this process is not visible'
}
