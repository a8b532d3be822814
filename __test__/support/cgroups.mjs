// Cgroups as the kernel shows them to anybody, found without the code under test.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isWindows } from './system.mjs'

/** Our own cgroup's directory; undefined if it cannot be seen. */
export const base = ownDirectory()

/** Why there are no cgroups to be had here; false if there are. */
export const unavailable = whyNot()

/** The controllers that runs could be given limits with. */
export const controllers = base
  ? readFileSync(join(base, 'cgroup.controllers'), 'utf8').trim().split(' ')
  : []

function ownDirectory() {
  if (isWindows) return undefined
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n')
  const mount = mounts.find((line) => line.includes(' - cgroup2 '))?.split(' ')
  const own = cgroupOf('self')
  // Whoever is in a part of it that is mounted elsewhere can test that by hand.
  return mount?.[3] === '/' && own !== undefined ? join(mount[4], own).replace(/\/$/, '') : undefined
}

function whyNot() {
  if (base === undefined) return 'no cgroup v2 is mounted here'
  if (existsSync('/run/systemd/system')) return 'systemd manages the cgroups here'
  const probe = join(base, `test-${process.pid}`)
  try {
    mkdirSync(probe)
    rmdirSync(probe)
    return false
  } catch ({ code }) {
    return `no cgroup can be made in ${base} (${code})`
  }
}

/** The cgroup of a process, as it is for `/proc`. */
export function cgroupOf(pid) {
  const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').split('\n')
  return lines.find((line) => line.startsWith('0::'))?.slice(3)
}

export const isIn = (pid, directory) => cgroupOf(pid).split('/').at(-1) === directory.split('/').at(-1)

export const moveInto = (directory, pid) => writeFileSync(join(directory, 'cgroup.procs'), `${pid}`)

/** A cgroup that goes with the test, and whoever is in it. */
export function foreignCgroup(t, name) {
  const directory = join(base, name)
  mkdirSync(directory)
  t.after(() => remove(directory))
  return directory
}

/** Kills whoever is in it, below it too. */
export const killAll = (directory) => writeFileSync(join(directory, 'cgroup.kill'), '1')

export const isEmpty = (directory) =>
  readFileSync(join(directory, 'cgroup.events'), 'utf8').includes('populated 0')

async function remove(directory) {
  if (!existsSync(directory)) return
  killAll(directory)
  while (!isEmpty(directory)) await new Promise(setImmediate)
  rmdirSync(directory)
}

/** Those that have the name of a run's, in our own. */
export const runCgroups = () => readdirSync(base).filter((name) => name.startsWith('spawn-owned-'))
