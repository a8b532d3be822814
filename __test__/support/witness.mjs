// The independent witness of a tree's life: a FIFO that every process of the tree holds open for writing
// (fixtures/witness.h has the other half). EOF at its read end means that no process of the tree exists;
// nothing else is ever taken as a proof of life or death.
import { execFileSync } from 'node:child_process'
import {
  closeSync,
  constants,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
} from 'node:fs'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export const READY = 'r'
export const NEWBORN = 'n'
export const CLEANED_UP = 'c'

/** A witness that is closed with the test `t`, which also ends what is left of its tree (see the leash). */
export function openWitness(t) {
  const witness = new Witness()
  t.after(() => witness.close())
  return witness
}

class Witness {
  #marks = new Map()
  #waiting = new Set()
  #ended = false
  #readEnd
  #reader

  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), 'witness-'))
    this.path = join(this.dir, 'fifo')
    execFileSync('mkfifo', ['-m', '600', this.path])
    this.#readEnd = openSync(this.path, constants.O_RDONLY | constants.O_NONBLOCK)
    /** Ours until release(): as long as it is open there is no EOF, however few processes have started. */
    this.writeEnd = openSync(this.path, constants.O_WRONLY)
    this.#reader = new Socket({ fd: this.#readEnd, readable: true, writable: false })
    this.#reader.on('data', (bytes) => this.#note(bytes)).on('end', () => this.#note(null))
  }

  /** How many of these marks were seen so far. */
  count(mark) {
    return this.#marks.get(mark) ?? 0
  }

  /** Resolves once `processes` of the tree stand; from then on only they hold the witness. */
  async ready(processes, timeoutMs = 20_000) {
    const told = () => `${this.count(READY)} of ${processes} processes were ready after ${timeoutMs} ms`
    await this.#until(() => this.count(READY) >= processes, timeoutMs, told)
    this.release()
  }

  /** Gives up our own write end. */
  release() {
    if (this.writeEnd === null) return
    closeSync(this.writeEnd)
    this.writeEnd = null
  }

  /** Whether at this very moment no process of the tree exists. */
  isGone() {
    if (this.writeEnd !== null) throw new Error('release() the witness first, or it can never be at its end')
    // A test that ran out of time may still come here, when the descriptor's number is somebody else's.
    if (this.#reader.destroyed && !this.#ended) throw new Error('the witness was closed')
    const bytes = Buffer.alloc(64)
    while (!this.#ended) {
      try {
        const size = readSync(this.#readEnd, bytes)
        if (size === 0) return true
        this.#note(bytes.subarray(0, size))
      } catch (error) {
        if (error.code === 'EAGAIN') return false
        throw error
      }
    }
    return true
  }

  /** Resolves with the milliseconds it took until no process of the tree existed. */
  async gone(timeoutMs) {
    const from = performance.now()
    const told = () => `processes still exist after ${timeoutMs} ms:\n${this.holders()}`
    await this.#until(() => this.isGone(), timeoutMs, told)
    return performance.now() - from
  }

  /** Who holds the witness, for failure messages only: a hydra is never seen here. */
  holders() {
    const others = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    const lines = others.filter((pid) => holds(pid, this.path)).map((pid) => `  ${describe(pid)}`)
    return lines.join('\n') || '  (none seen)'
  }

  close() {
    this.release()
    this.#reader.destroy()
    rmSync(this.dir, { recursive: true, force: true })
  }

  #note(bytes) {
    if (bytes === null) this.#ended = true
    for (const byte of bytes ?? []) {
      const mark = String.fromCharCode(byte)
      this.#marks.set(mark, this.count(mark) + 1)
    }
    for (const check of this.#waiting) check()
  }

  #until(reached, timeoutMs, failure) {
    return new Promise((resolve, reject) => {
      const settle = (how, value) => {
        clearTimeout(timer)
        this.#waiting.delete(check)
        how(value)
      }
      const check = () => reached() && settle(resolve)
      const timer = setTimeout(() => settle(reject, new Error(failure())), timeoutMs)
      this.#waiting.add(check)
      check()
    })
  }
}

// Per thread: a process whose main thread has exited shows no descriptors as a whole.
function holds(pid, path) {
  try {
    return readdirSync(`/proc/${pid}/task`).some((thread) => {
      const fds = `/proc/${pid}/task/${thread}/fd`
      return readdirSync(fds).some((fd) => readlinkSync(`${fds}/${fd}`) === path)
    })
  } catch {
    return false
  }
}

function describe(pid) {
  try {
    const [, name, rest] = readFileSync(`/proc/${pid}/stat`, 'utf8').match(/\((.*)\) (.*)/s)
    const [state, parent, group, session] = rest.split(' ')
    return `pid ${pid} (${name}) state ${state} parent ${parent} group ${group} session ${session}`
  } catch {
    return `pid ${pid}, just gone`
  }
}
