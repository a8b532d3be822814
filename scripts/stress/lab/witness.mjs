/** The stage's own eyes. Nothing of the product is asked: pipes, /proc, and the registry's files as anybody may read them. */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'

const STOPS_MS = 5000

/** Those that the lab has sent SIGKILL to. On a busy machine they may be there for a while. */
const doomed = new Set()

/** A process by number and start: signalled only while it is the one that was meant. */
export class ProcessHandle {
  constructor(pid) {
    this.pid = pid
    this.started = statOf(pid)?.started
  }

  isAlive() {
    const stat = statOf(this.pid)
    return stat !== undefined && stat.started === this.started && !isDead(stat)
  }

  isStopped() {
    return this.isAlive() && statOf(this.pid).state === 'T'
  }

  get parent() {
    return this.isAlive() ? new ProcessHandle(statOf(this.pid).parent) : undefined
  }

  get #identity() {
    return `${this.pid} ${this.started}`
  }

  get isDoomed() {
    return doomed.has(this.#identity)
  }

  isSame({ pid, started }) {
    return pid === this.pid && started === this.started
  }

  /** Whether there was somebody to hear it. */
  signal(signal) {
    if (!this.isAlive()) return false
    if (signal === 'SIGKILL') doomed.add(this.#identity)
    try {
      process.kill(this.pid, signal)
      return true
    } catch {
      return false
    }
  }

  /** Returns when it has stopped. */
  async stop() {
    this.signal('SIGSTOP')
    const giveUpAt = performance.now() + STOPS_MS
    while (this.isAlive() && !this.isStopped() && performance.now() < giveUpAt) await delay(1)
  }
}

const isDead = ({ state }) => state === 'Z' || state === 'X'

export function statOf(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return {
      state: fields[0],
      parent: Number(fields[1]),
      started: fields[19],
      name: stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')')),
    }
  } catch {
    return undefined
  }
}

export const processes = () =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)

export const childrenOf = (parent) => processes().filter((pid) => statOf(pid)?.parent === parent)

export function isHelper(pid) {
  try {
    return readlinkSync(`/proc/${pid}/exe`).includes('spawn-owned-keeper')
  } catch {
    return false
  }
}

/** Whether a process has one of these files open. */
export function holdsAny(pid, paths) {
  try {
    return readdirSync(`/proc/${pid}/task`).some((thread) => {
      const folder = `/proc/${pid}/task/${thread}/fd`
      return readdirSync(folder).some((fd) => paths.includes(readlinkSync(`${folder}/${fd}`)))
    })
  } catch {
    return false
  }
}

/** Whether a file of this name is mapped into it. */
export const hasLoaded = (pid, name) => {
  const maps = quietly(() => readFileSync(`/proc/${pid}/maps`, 'utf8'))
  return maps?.includes(`/${name}`) ?? false
}

/** For people. */
export function describe(pid) {
  const { name, state, parent } = statOf(pid) ?? {}
  const line = quietly(() => readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim())
  return `${pid} (${name}, state ${state}, parent ${parent}): ${line?.slice(0, 200)}`
}

/** What a bot has, as the system sees it. */
export function measure(pid) {
  const children = childrenOf(pid)
  const below = children.flatMap(childrenOf)
  return {
    fds: quietly(() => readdirSync(`/proc/${pid}/fd`).length) ?? 0,
    threads: quietly(() => readdirSync(`/proc/${pid}/task`).length) ?? 0,
    zombies: [...children, ...below].filter((it) => statOf(it)?.state === 'Z').length,
    helpers: children.length + below.length,
    rssKb: Number(
      /VmRSS:\s+(\d+)/.exec(quietly(() => readFileSync(`/proc/${pid}/status`, 'utf8')))?.[1] ?? 0,
    ),
  }
}

/**
 * Which runs the registry has on record now. Lines only ever move from the journal to `.old` to the file; read in that order, none is
 * missed because it moved meanwhile. `invalid`: the file is there and is no JSON.
 */
export function readRegistry(path) {
  const journals = [`${path}.journal`, `${path}.journal.old`].map((name) => textOf(name) ?? '')
  const text = textOf(path)
  const recorded = new Map()
  let invalid
  try {
    for (const { startToken, runId } of text === undefined ? [] : JSON.parse(text).entries)
      recorded.set(startToken, runId)
  } catch (error) {
    invalid = `${error.message} in ${JSON.stringify(text.slice(0, 200))}`
  }
  for (const line of journals.reverse().join('\n').split('\n')) apply(recorded, line)
  return { text, invalid, runIds: new Set(recorded.values()) }
}

function apply(recorded, line) {
  const [, length, json] = /^(\d+) (.*)$/.exec(line) ?? []
  if (json === undefined || Buffer.byteLength(json) !== Number(length)) return
  const { intent, returned, dropped } = JSON.parse(json)
  const entry = (intent ?? returned)?.entry
  if (entry) recorded.set(entry.startToken, entry.runId)
  for (const key of dropped?.keys ?? []) recorded.delete(key)
}

function textOf(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (error.code === 'ENOENT') return undefined
    throw error
  }
}

export function quietly(look) {
  try {
    return look()
  } catch {
    return undefined
  }
}

/** Whether it has settled by then. */
export async function within(promise, ms) {
  let timer
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, ms, false)
  })
  const inTime = await Promise.race([
    promise.then(
      () => true,
      () => true,
    ),
    late,
  ])
  clearTimeout(timer)
  return inTime
}
