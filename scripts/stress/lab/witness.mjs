/** Observations of the stage, without the product: pipes, /proc, and the files of the registry. */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'

const STOPS_MS = 5000

/** Processes to which the lab has sent SIGKILL. On a busy machine they may exist for a while. */
const killed = new Set()

/** A process, identified by PID and start time. Signals go only to this process. */
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

  get isKilled() {
    return killed.has(this.#identity)
  }

  isSame({ pid, started }) {
    return pid === this.pid && started === this.started
  }

  /** Whether the signal could be sent. */
  signal(signal) {
    if (!this.isAlive()) return false
    if (signal === 'SIGKILL') killed.add(this.#identity)
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
    // By its name: a bot of another user cannot read /proc/PID/exe.
    return /^owned-(keeper|zygote|blank)$/.test(readFileSync(`/proc/${pid}/comm`, 'utf8').trim())
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

/** Whether a file with this name is mapped into the process. */
export const hasLoaded = (pid, name) => {
  const maps = quietly(() => readFileSync(`/proc/${pid}/maps`, 'utf8'))
  return maps?.includes(`/${name}`) ?? false
}

/** A process in words. */
export function describeProcess(pid) {
  const { name, state, parent } = statOf(pid) ?? {}
  const line = quietly(() => readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim())
  return `${pid} (${name}, state ${state}, parent ${parent}): ${line?.slice(0, 200)}`
}

/** The resources of a bot, as the system sees them. */
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
 * The runs that the registry contains now. Lines move only from the journal to `.old` to the file.
 * Reading in that order misses no line that moves meanwhile. `invalid`: the file exists and is not
 * JSON.
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

/** Whether the promise settles within `ms`. */
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
