import { closeSync, fstatSync, readSync, watch } from 'node:fs'
import { dirname } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { EndedRun, RunRecord, Supervisor } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { exitOf } from '../ended-display.js'
import { eventLogOf, parseDecision } from '../event-log.js'
import { openFile, readFile } from '../regular-file.js'
import { printable } from '../text.js'

const DEFAULT_LINES = 20
/** The polling interval, for file systems that do not report changes. */
const POLL_MS = 500
/** The pause after a change: a busy registry changes all the time. */
const PAUSE_MS = 50
/** How often, and at which interval, to look for the end of a run. A busy bot writes it late. */
const HISTORY_ATTEMPTS = 50
const HISTORY_PAUSE_MS = 100

export async function events(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  const [rotated, current] = eventLogOf(supervisor.registryPath) as [string, string]
  const tail = new Tail(current)
  const all = [...linesOf(rotated), ...tail.read()]
  const past = all.slice(Math.max(0, all.length - (request.number('lines') ?? DEFAULT_LINES)))
  for (const line of past) printLine(context, line)
  if (!request.flag('follow')) {
    if (past.length === 0 && !context.json)
      context.say(`No decisions about orphans in ${current}. "spawn-owned ps -a" lists ended runs.`)
    return 0
  }
  await follow(context, tail)
  return 0
}

const linesOf = (path: string): string[] => {
  try {
    return readFile(path).split('\n').filter(Boolean)
  } catch {
    return []
  }
}

function printLine({ json, print, printJson }: Context, line: string): void {
  const decision = parseDecision(line)
  if (!json) print(printable(line))
  else if (decision) printJson({ type: 'orphan', ...decision })
}

/** Reads a file that grows and is rotated. */
class Tail {
  #path: string
  #file = 0
  #at = 0
  #rest = ''

  constructor(path: string) {
    this.#path = path
  }

  /** Returns the complete lines that were added since the last call. */
  read(): string[] {
    let fd: number
    try {
      fd = openFile(this.#path)
    } catch {
      return []
    }
    try {
      const { size, ino } = fstatSync(fd)
      const earlier = this.#file !== 0 && ino !== this.#file ? this.#remainder() : []
      if (ino !== this.#file) [this.#file, this.#at, this.#rest] = [ino, 0, '']
      const bytes = Buffer.alloc(size - this.#at)
      this.#at += readSync(fd, bytes, 0, bytes.length, this.#at)
      const lines = (this.#rest + bytes.toString()).split('\n')
      this.#rest = lines.pop() ?? ''
      return [...earlier, ...lines]
    } finally {
      closeSync(fd)
    }
  }

  /** Returns the lines that were added to the rotated file after the last read. */
  #remainder(): string[] {
    try {
      const text = Buffer.from(readFile(`${this.#path}.1`))
        .subarray(this.#at)
        .toString()
      return (this.#rest + text).split('\n').filter(Boolean)
    } catch {
      return []
    }
  }
}

/** Prints changes until Ctrl-C. */
async function follow(context: Context, tail: Tail): Promise<never> {
  const { supervisor } = context
  let known = recordsOf(supervisor)
  for (;;) {
    await change(dirname(supervisor.registryPath))
    await delay(PAUSE_MS)
    const now = recordsOf(supervisor)
    const at = new Date().toISOString()
    for (const { what, record } of differences(known, now)) {
      if (what !== 'gone') printChange(context, at, what, record)
      // Other lines do not wait for the end of this run.
      else void endOf(supervisor, record).then((end) => printChange(context, at, what, record, end))
    }
    known = now
    for (const line of tail.read()) printLine(context, line)
  }
}

/** Prints a change of a run. `end`: how it ended, if known. */
function printChange(context: Context, at: string, what: string, record: RunRecord, end?: EndedRun): void {
  const { runId, pid, state, sessionId, commandPreview } = record
  const { reason, exitCode, signal } = end ?? {}
  if (context.json) {
    const about = { type: 'run', at, what, runId, pid, state, sessionId, commandPreview }
    context.printJson(end ? { ...about, reason, exitCode, signal } : about)
  } else {
    const how = end ? ` reason=${reason} exit=${exitOf(end)}` : ''
    const about = `${at} ${what.toUpperCase()} run=${runId} pid=${pid}${how}`
    context.print(printable(`${about} cmd=${JSON.stringify(commandPreview)}`))
  }
}

/** Returns how a run ended. Its bot writes that a moment after the run has left the registry. */
async function endOf(supervisor: Supervisor, { runId, pid }: RunRecord): Promise<EndedRun | undefined> {
  for (let attempt = 0; attempt < HISTORY_ATTEMPTS; attempt++) {
    if (attempt > 0) await delay(HISTORY_PAUSE_MS)
    const ended = await supervisor.history({ runId, pid }).catch(() => [])
    if (ended.length > 0) return ended.at(-1)
  }
  return undefined
}

type Records = ReadonlyMap<string, RunRecord>

const recordsOf = (supervisor: Supervisor): Records =>
  new Map(supervisor.list().map((record) => [`${record.runId} ${record.startToken}`, record]))

/** Returns the changes of runs between two surveys. Pure. */
export function differences(before: Records, after: Records): { what: string; record: RunRecord }[] {
  const found: { what: string; record: RunRecord }[] = []
  for (const [key, record] of after) {
    const earlier = before.get(key)
    if (!earlier) found.push({ what: 'appeared', record })
    else if (earlier.state !== record.state) found.push({ what: record.state, record })
    else if (earlier.botPid !== record.botPid) found.push({ what: 'adopted', record })
  }
  for (const [key, record] of before) if (!after.has(key)) found.push({ what: 'gone', record })
  return found
}

/** Resolves after a change in the folder, or after the polling interval. */
function change(folder: string): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer)
      watcher?.close()
      resolve()
    }
    const timer = setTimeout(done, POLL_MS)
    const watcher = watched(folder, done)
  })
}

function watched(folder: string, done: () => void): { close(): void } | undefined {
  try {
    return watch(folder, done).on('error', () => {})
  } catch {
    // The folder does not exist yet, or the system has no watches left.
    return undefined
  }
}
