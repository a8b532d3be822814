// Cgroups as the kernel shows them, found without the code under test.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isWindows } from './system.mjs'

/** The directory of our own cgroup, or undefined if it is not visible. */
export const base = ownDirectory()

/** Why cgroups cannot be used, or false. */
export const unavailable = whyNot()

/** The controllers that can limit runs. */
export const controllers = base
  ? readFileSync(join(base, 'cgroup.controllers'), 'utf8').trim().split(' ')
  : []

function ownDirectory() {
  if (isWindows) return undefined
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n')
  const mount = mounts.find((line) => line.includes(' - cgroup2 '))?.split(' ')
  const own = cgroupOf('self')
  // Other mounts of a part of the hierarchy are not supported.
  return mount?.[3] === '/' && own !== undefined ? join(mount[4], own).replace(/\/$/, '') : undefined
}

function whyNot() {
  if (base === undefined) return 'no cgroup v2 is mounted'
  if (existsSync('/run/systemd/system')) return 'systemd manages the cgroups'
  const probe = join(base, `test-${process.pid}`)
  try {
    mkdirSync(probe)
    rmdirSync(probe)
    return false
  } catch ({ code }) {
    return `cannot create a cgroup in ${base} (${code})`
  }
}

/** The cgroup of a process, from `/proc`. */
export function cgroupOf(pid) {
  const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').split('\n')
  return lines.find((line) => line.startsWith('0::'))?.slice(3)
}

export const isIn = (pid, directory) => cgroupOf(pid).split('/').at(-1) === directory.split('/').at(-1)

export const moveInto = (directory, pid) => writeFileSync(join(directory, 'cgroup.procs'), `${pid}`)

/** A cgroup that is removed with the test, after its processes are killed. */
export function foreignCgroup(t, name) {
  const directory = join(base, name)
  mkdirSync(directory)
  t.after(() => remove(directory))
  return directory
}

/** Kills all processes in it and below it. */
export const killAll = (directory) => writeFileSync(join(directory, 'cgroup.kill'), '1')

export const isEmpty = (directory) =>
  readFileSync(join(directory, 'cgroup.events'), 'utf8').includes('populated 0')

async function remove(directory) {
  if (!existsSync(directory)) return
  killAll(directory)
  while (!isEmpty(directory)) await new Promise(setImmediate)
  rmdirSync(directory)
}

/** The cgroups of runs in our own cgroup. */
export const runCgroups = () => readdirSync(base).filter((name) => name.startsWith('spawn-owned-'))
