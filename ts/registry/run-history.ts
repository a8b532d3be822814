// RunHistory: how the ended runs of a registry ended, as one line of JSON per run in a file.

import { closeSync, constants, fstatSync, openSync, writeSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import type { EndedRun, RegistryProblem } from '../../index.js'
import { epochMs, setTimeout } from '../util/timers.js'

/** What `history()` returns at most: this many runs, of this age. */
const MAX_RUNS = 1000
const MAX_AGE_MS = 7 * 24 * 60 * 60 * 1000
/** At this size the file is renamed to the same name with `.1`, which holds the older runs. */
const MAX_BYTES = 1024 * 1024
/** A run with larger labels is left out. */
const MAX_LINE = 64 * 1024
/** Many runs can end at the same time. Their lines are written together. */
const DELAY_MS = 50

/** Windows does not have the last two. */
const { O_RDONLY, O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants
const TO_APPEND = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK

/** Histories with lines that are not written yet. */
const unwritten = new Set<RunHistory>()

export class RunHistory {
  readonly #path: string
  /** Renames a full file once, whichever bots do this at the same time. */
  readonly #rotate: (path: string, maxBytes: number) => Promise<void>
  readonly #report: (problem: RegistryProblem) => void
  #lines: string[] = []
  /** What is being written. */
  #pending = ''
  #writing: Promise<void> = Promise.resolve()
  #isScheduled = false
  #hasReported = false

  constructor(
    path: string,
    rotate: (path: string, maxBytes: number) => Promise<void>,
    report: (problem: RegistryProblem) => void,
  ) {
    this.#path = path
    this.#rotate = rotate
    this.#report = report
  }

  /** Adds runs. They are written later, not on the event loop. */
  add(runs: readonly EndedRun[]): void {
    const lines = runs.map((run) => `${JSON.stringify(run)}\n`).filter(({ length }) => length <= MAX_LINE)
    if (lines.length === 0) return
    this.#lines.push(...lines)
    if (unwritten.size === 0) process.on('exit', writeAll)
    unwritten.add(this)
    if (this.#isScheduled) return
    this.#isScheduled = true
    // A bot that exits meanwhile writes them at its exit.
    setTimeout(() => void this.flush(), DELAY_MS).unref()
  }

  /** Writes what was added. Never rejects: without a history, the runs work all the same. */
  flush(): Promise<void> {
    this.#isScheduled = false
    this.#writing = this.#writing.then(() => this.#write()).catch((error) => this.#onFailure(error))
    return this.#writing
  }

  /** Returns the runs of the file, oldest first. */
  async read(): Promise<EndedRun[]> {
    // Other supervisors of this process can use the same file.
    await Promise.all([this, ...unwritten].map((history) => history.flush()))
    return parseHistory(await readBoth(this.#path), epochMs())
  }

  async #write(): Promise<void> {
    const text = this.#take()
    if (text === '') return
    this.#pending = text
    const isFull = await append(this.#path, text).finally(() => this.#afterWrite())
    // Not a rename by name: another bot may have renamed the full file since.
    if (isFull) await this.#rotate(this.#path, MAX_BYTES)
  }

  /** Writes what was added, at the exit of the bot: no callback runs after it. */
  writeNow(): void {
    // The exit can interrupt a write. A line that is written twice counts once.
    const text = this.#pending + this.#take()
    if (text === '') return
    let fd: number | undefined
    try {
      fd = openSync(this.#path, TO_APPEND, 0o600)
      checkFile(fstatSync(fd), this.#path)
      writeSync(fd, text)
    } catch {
      // The bot exits. The registry is up to date without it.
    } finally {
      if (fd !== undefined) closeSync(fd)
    }
  }

  #take(): string {
    const text = this.#lines.join('')
    this.#lines = []
    return text
  }

  #afterWrite(): void {
    this.#pending = ''
    if (this.#lines.length > 0) return
    if (unwritten.delete(this) && unwritten.size === 0) process.off('exit', writeAll)
  }

  /** Reports the first failure. The folder of a registry can be deleted: that is no problem. */
  #onFailure(error: NodeJS.ErrnoException): void {
    if (error.code === 'ENOENT' || this.#hasReported) return
    this.#hasReported = true
    const message = `The history of ended runs cannot be written: ${error.message}. Make the file writable, or set historyPath.`
    this.#report({ kind: 'history', message, path: this.#path })
  }
}

function writeAll(): void {
  for (const history of unwritten) history.writeNow()
}

/** Another user may put a FIFO or a device in place of the file. */
function checkFile<Stat extends { isFile(): boolean; uid: number; nlink: number }>(
  stat: Stat,
  path: string,
): Stat {
  if (!stat.isFile()) throw new Error(`${path} is not a regular file`)
  // Another user could read it, or have written it. Windows has no such numbers.
  if (process.geteuid && stat.uid !== process.geteuid()) throw new Error(`${path} belongs to another user`)
  if (process.geteuid && stat.nlink > 1) throw new Error(`${path} has another hard link`)
  return stat
}

/** Appends a text. Returns whether the file is full. */
async function append(path: string, text: string): Promise<boolean> {
  const file = await open(path, TO_APPEND, 0o600)
  try {
    checkFile(await file.stat(), path)
    await file.appendFile(text)
    return (await file.stat()).size > MAX_BYTES
  } finally {
    await file.close()
  }
}

/**
 * Returns the older file and the newer one as one text.
 *
 * Opens the newer one first. If a bot renames it to the older name meanwhile, it is read twice. In
 * the other order it would not be read at all.
 */
async function readBoth(path: string): Promise<string> {
  const newer = await openToRead(path)
  try {
    const older = await openToRead(`${path}.1`)
    const texts = [older, newer].map(async (file) => (await file?.readFile('utf8')) ?? '')
    return (await Promise.all(texts).finally(() => older?.close())).join('')
  } finally {
    await newer?.close()
  }
}

async function openToRead(path: string): Promise<FileHandle | undefined> {
  let file: FileHandle | undefined
  try {
    file = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    checkFile(await file.stat(), path)
    return file
  } catch (error) {
    await file?.close()
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/**
 * Returns the runs of a text, oldest first. Pure.
 *
 * Two bots can write the same run: its owner, and one that cancelled it. The later line counts.
 * Damaged lines are skipped.
 */
export function parseHistory(text: string, nowMs: number): EndedRun[] {
  const runs = new Map<string, EndedRun>()
  for (const line of text.split('\n')) {
    const run = parsed(line)
    if (run && run.endedAtMs > nowMs - MAX_AGE_MS) runs.set(`${run.runId} ${run.pid}`, run)
  }
  return [...runs.values()].sort((a, b) => a.endedAtMs - b.endedAtMs).slice(-MAX_RUNS)
}

function parsed(line: string): EndedRun | undefined {
  try {
    const run = JSON.parse(line) as EndedRun
    const isValid = typeof run.runId === 'string' && typeof run.pid === 'number'
    // Earlier versions did not write `forced`.
    return isValid && typeof run.endedAtMs === 'number' ? { ...run, forced: run.forced ?? 0 } : undefined
  } catch {
    return undefined
  }
}
