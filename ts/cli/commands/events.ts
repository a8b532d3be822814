import { closeSync, fstatSync, readSync, watch } from 'node:fs'
import { dirname } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { RunRecord, Supervisor } from '../../../index.js'
import { eventLogOf, parseDecision } from '../event-log.js'
import { openFile, readFile } from '../files.js'
import type { Context, Outcome } from '../terminal.js'
import { printable } from '../text.js'

const DEFAULT_LINES = 20
/** Where a change is not told, it is found. */
const LOOK_EVERY_MS = 500
/** A busy registry changes all the while. */
const PAUSE_MS = 50

export async function events(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  const [rotated, current] = eventLogOf(supervisor.registryPath) as [string, string]
  const tail = new Tail(current)
  const all = [...linesOf(rotated), ...tail.read()]
  const past = all.slice(Math.max(0, all.length - (request.number('lines') ?? DEFAULT_LINES)))
  for (const line of past) printLine(context, line)
  if (!request.flag('follow')) {
    if (past.length === 0 && !context.json) context.say(`No decisions about orphans in ${current}.`)
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

/** A file that grows, and is replaced when it has become too long. */
class Tail {
  #path: string
  #file = 0
  #at = 0
  #rest = ''

  constructor(path: string) {
    this.#path = path
  }

  /** Whole lines that have come since. */
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

  /** What was written to the file that has been moved aside since we have read it. */
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

/** Until Ctrl-C. */
async function follow(context: Context, tail: Tail): Promise<never> {
  const { supervisor } = context
  let known = recordsOf(supervisor)
  for (;;) {
    await change(dirname(supervisor.registryPath))
    await delay(PAUSE_MS)
    const now = recordsOf(supervisor)
    for (const { what, record } of differences(known, now)) {
      const at = new Date().toISOString()
      const { runId, pid, state, sessionId, commandPreview } = record
      if (context.json)
        context.printJson({ type: 'run', at, what, runId, pid, state, sessionId, commandPreview })
      else
        context.print(
          printable(
            `${at} ${what.toUpperCase()} run=${runId} pid=${pid} cmd=${JSON.stringify(commandPreview)}`,
          ),
        )
    }
    known = now
    for (const line of tail.read()) printLine(context, line)
  }
}

type Records = ReadonlyMap<string, RunRecord>

const recordsOf = (supervisor: Supervisor): Records =>
  new Map(supervisor.list().map((record) => [`${record.runId} ${record.startToken}`, record]))

/** What has become of runs between two looks. Pure. */
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

/** Something in the folder has changed, or it is time to look all the same. */
function change(folder: string): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer)
      watcher?.close()
      resolve()
    }
    const timer = setTimeout(done, LOOK_EVERY_MS)
    const watcher = watched(folder, done)
  })
}

function watched(folder: string, done: () => void): { close(): void } | undefined {
  try {
    return watch(folder, done).on('error', () => {})
  } catch {
    // No folder yet, or no more watches to be had.
    return undefined
  }
}
