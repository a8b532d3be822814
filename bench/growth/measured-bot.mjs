/** Worker side of the growth benchmark: what a measured bot does. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { cancel, list, reapOrphans, registerProcess, unregisterProcess } from 'spawn-owned'
import { seedEntries, writeRegistry } from '../lib/seed.mjs'

const held = []
const STAYS = ['/bin/sleep', ['3600'], { stdio: 'ignore' }]

/** Starts runs until `live` are alive. */
export async function hold(start, { live }) {
  const fresh = Array.from({ length: live - held.length }, () => start(...STAYS))
  held.push(...fresh)
  await Promise.all(fresh.map((child) => once(child, 'spawn')))
}

export async function cancelOne(start, { count }) {
  const samples = []
  for (let i = 0; i < count; i++) {
    const child = start(...STAYS)
    await once(child, 'spawn')
    const before = performance.now()
    await end(child)
    samples.push(performance.now() - before)
  }
  return samples
}

async function end(child) {
  if (child.cancel) return child.cancel()
  child.kill()
  return once(child, 'exit')
}

export async function release() {
  await Promise.all(held.splice(0).map(end))
}

/** Writes the registry as another bot would have left it. */
export function seed(_start, { path, entries, ownerToken }) {
  mkdirSync(dirname(path), { recursive: true })
  writeRegistry(path, seedEntries(entries, ownerToken))
}

export async function registerOne(_start, { count }) {
  const child = spawn(...STAYS)
  await once(child, 'spawn')
  const path = process.env.SPAWN_OWNED_REGISTRY
  const samples = []
  for (let i = 0; i < count; i++) {
    const file = statSync(path).ino
    const before = performance.now()
    const { runId } = registerProcess({ pid: child.pid, sessionId: 'bench' })
    const registered = performance.now()
    // A file that is replaced has another inode.
    while (statSync(path).ino === file) await delay(1)
    const followed = performance.now()
    unregisterProcess({ runId })
    const unregistered = performance.now()
    samples.push({
      register: registered - before,
      unregister: unregistered - followed,
      behind: followed - registered,
    })
    while (readFileSync(path, 'utf8').includes(runId)) await delay(5)
  }
  await end(child)
  return samples
}

export function listAll(_start, { count, entries }) {
  return Array.from({ length: count }, () => {
    const before = performance.now()
    const all = list()
    const between = performance.now()
    const one = list({ runId: all.at(-1)?.runId ?? '' })
    const after = performance.now()
    if (all.length < entries || one.length !== 1) throw new Error(`${all.length} of ${entries} were listed`)
    return { all: between - before, one: after - between }
  })
}

const DETACHED = [STAYS[0], STAYS[1], { ...STAYS[2], detached: true }]

/** Registers a process, lists and reaps while it lives, and ends it. */
export async function besideOthers(_start, { count }) {
  const samples = []
  for (let i = 0; i < count; i++) {
    const child = spawn(...DETACHED)
    await once(child, 'spawn')
    const times = [performance.now()]
    const { runId } = registerProcess({ pid: child.pid })
    times.push(performance.now())
    list()
    times.push(performance.now())
    await reapOrphans()
    times.push(performance.now())
    await cancel(runId)
    times.push(performance.now())
    const [register, all, reap, end] = times.slice(1).map((time, index) => time - times[index])
    samples.push({ register, list: all, reap, end })
  }
  return samples
}

/** Registers `count` processes, after many that were unregistered. They end with the bot. */
export async function holdRegistered(_start, { count }) {
  const children = Array.from({ length: count }, () => spawn(...DETACHED))
  process.once('exit', () => {
    for (const child of children) child.kill('SIGKILL')
  })
  await Promise.all(children.map((child) => once(child, 'spawn')))
  for (let i = 0; i < 500; i++) unregisterProcess(registerProcess({ pid: children[0].pid }).runId)
  for (const { pid } of children) registerProcess({ pid })
}
