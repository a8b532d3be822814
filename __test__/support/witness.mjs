// The independent witness of a tree: a FIFO that every process of the tree holds open for writing
// (fixtures/witness.h is the other half). EOF at its read end means that no process of the tree
// exists. Tests accept no other proof.
//
// On Windows it is a file (fixtures/windows/witness.h is the other half), and the kernel gives the
// proof: an exclusive open fails as long as any process has the file open.
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
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isLinux, isNode, isWindows, isWine } from './system.mjs'

export const READY = 'r'
export const NEWBORN = 'n'
export const CLEANED_UP = 'c'

/** Poll interval where there is no event. */
const LOOK_EVERY_MS = 5

/**
 * How long a tree may take to become ready. In Wine on a busy machine, a hundred processes take
 * half a minute.
 */
const STANDS_MS = isWine ? 50_000 : 20_000

/**
 * A witness that is closed with the test `t`, which also ends what is left of its tree (see the
 * leash).
 */
export function openWitness(t) {
  const witness = isWindows ? new FileWitness() : new FifoWitness()
  t.after(() => witness.close())
  return witness
}

/** The common part: marks, our own write end, and waiting. A subclass says how to look. */
class Witness {
  #marks = new Map()
  #waiting = new Set()
  ended = false

  constructor(name) {
    this.dir = mkdtempSync(join(tmpdir(), 'witness-'))
    this.path = join(this.dir, name)
  }

  /** How many of these marks were seen so far. */
  count(mark) {
    return this.#marks.get(mark) ?? 0
  }

  /** Resolves when `processes` of the tree are ready. From then on only they hold the witness. */
  async ready(processes, timeoutMs = STANDS_MS) {
    const message = () => `${this.count(READY)} of ${processes} processes were ready after ${timeoutMs} ms`
    await this.until(() => this.count(READY) >= processes, timeoutMs, message)
    this.release()
  }

  /** Closes our own write end. */
  release() {
    if (this.writeEnd === null) return
    closeSync(this.writeEnd)
    this.writeEnd = null
  }

  /** Whether no process of the tree exists at this moment. */
  isGone() {
    if (this.writeEnd !== null) throw new Error('release() the witness first, or it can never be at its end')
    // A test that timed out may still call this, when another file has the same descriptor.
    if (this.isClosed && !this.ended) throw new Error('the witness was closed')
    return this.ended || this.look()
  }

  /** Resolves with the milliseconds until no process of the tree existed. */
  async gone(timeoutMs) {
    const from = performance.now()
    const message = () => `processes still exist after ${timeoutMs} ms:\n${this.holders()}`
    await this.until(() => this.isGone(), timeoutMs, message)
    return performance.now() - from
  }

  note(bytes) {
    for (const byte of bytes) {
      const mark = String.fromCharCode(byte)
      this.#marks.set(mark, (this.#marks.get(mark) ?? 0) + 1)
    }
  }

  check() {
    for (const check of this.#waiting) check()
  }

  until(reached, timeoutMs, failure) {
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

class FifoWitness extends Witness {
  #readEnd
  #reader

  constructor() {
    super('fifo')
    execFileSync('mkfifo', ['-m', '600', this.path])
    this.#readEnd = openSync(this.path, constants.O_RDONLY | constants.O_NONBLOCK)
    /**
     * Ours until release(): while it is open there is no EOF, even before any process has started.
     */
    this.writeEnd = openSync(this.path, constants.O_WRONLY)
    this.#reader = isNode ? this.#listen() : this.#lookNowAndThen()
  }

  get isClosed() {
    return this.#reader.destroyed
  }

  #listen() {
    const reader = new Socket({ fd: this.#readEnd, readable: true, writable: false })
    return reader.on('data', (bytes) => this.#hear(bytes)).on('end', () => this.#hear(null))
  }

  /** Bun and Deno cannot make a stream of a FIFO. */
  #lookNowAndThen() {
    const look = () => {
      if (this.look()) this.#hear(null)
      if (this.ended) clearInterval(timer)
    }
    const timer = setInterval(look, LOOK_EVERY_MS)
    const reader = {
      destroyed: false,
      destroy: () => {
        clearInterval(timer)
        if (!reader.destroyed) closeSync(this.#readEnd)
        reader.destroyed = true
      },
    }
    return reader
  }

  look() {
    const bytes = Buffer.alloc(64)
    while (!this.ended) {
      try {
        const size = readSync(this.#readEnd, bytes)
        if (size === 0) return true
        this.#hear(bytes.subarray(0, size))
      } catch (error) {
        if (error.code === 'EAGAIN') return false
        throw error
      }
    }
    return true
  }

  /**
   * The holders of the witness, only for failure messages: processes of a hydra end too fast to
   * appear.
   */
  holders() {
    if (!isLinux) return '  (only Linux shows which process has a file open)'
    const others = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    const lines = others.filter((pid) => holds(pid, this.path)).map((pid) => `  ${describe(pid)}`)
    return lines.join('\n') || '  (none seen)'
  }

  close() {
    this.release()
    this.#reader.destroy()
    rmSync(this.dir, { recursive: true, force: true })
  }

  #hear(bytes) {
    if (bytes === null) this.ended = true
    else this.note(bytes)
    this.check()
  }
}

/** libuv's UV_FS_O_EXLOCK, which Node does not name: an exclusive open. */
const UNSHARED = 0x10000000

class FileWitness extends Witness {
  #seen = 0
  #timer

  constructor() {
    super('marks')
    writeFileSync(this.path, '')
    /** Ours until release(), like that of the FIFO. */
    this.writeEnd = openSync(this.path, 'a')
    this.#timer = setInterval(() => this.check(), LOOK_EVERY_MS)
    this.#timer.unref()
  }

  isClosed = false

  count(mark) {
    this.#read()
    return super.count(mark)
  }

  look() {
    try {
      closeSync(openSync(this.path, constants.O_RDONLY | UNSHARED))
    } catch (error) {
      if (error.code === 'EBUSY') return false
      throw error
    }
    // No process is left that could write more.
    this.ended = true
    this.#read()
    return true
  }

  holders() {
    return '  (Windows does not show which process has a file open)'
  }

  /**
   * A tree without its file notices that the test is over. A process that has the file open keeps
   * the folder until it exits, and in Wine also the name of a removed file. So the file is renamed
   * first.
   */
  close() {
    this.release()
    this.isClosed = true
    clearInterval(this.#timer)
    const remove = () => {
      try {
        rmSync(this.dir, { recursive: true, force: true })
      } catch {}
    }
    try {
      renameSync(this.path, `${this.path}-of-a-test-that-is-over`)
    } catch {}
    remove()
    process.once('exit', remove)
  }

  #read() {
    if (this.isClosed) return
    const marks = readFileSync(this.path)
    this.note(marks.subarray(this.#seen))
    this.#seen = marks.length
  }
}

// Per thread: a process whose main thread has exited shows no file descriptors as a whole.
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
