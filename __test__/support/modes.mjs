// The ways in which a run can be connected to its bot, and all that differs between them. What is to hold for each of them is
// tested `for (const mode of modes)`.
import { isWindows } from './system.mjs'

/**
 * @typedef Mode
 * @property {string} name
 * @property {object} options   of a spawn, here or in another process: they can be sent as JSON
 * @property {(child, hear: (text: string) => void) => void} listen   to whatever the run says
 * @property {(child, text: string) => void} say
 * @property {(child) => void} hangUp   the run hears the end of its input
 */

const pipe = {
  name: 'pipe',
  options: { stdio: 'pipe' },
  listen(child, hear) {
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', hear)
  },
  say: (child, text) => child.stdin.write(text),
  hangUp: (child) => child.stdin.end(),
}

/** What it says and what it is told come over one terminal, which says everything it is told once more. */
const pty = {
  name: 'pty',
  options: { pty: true },
  listen(child, hear) {
    child.stdout.setEncoding('utf8').on('data', hear)
  },
  // A key, not a character: on Windows that is another one.
  say: (child, text) => child.stdin.write(isWindows ? text.replaceAll('\n', '\r') : text),
  hangUp: (child) => child.stdin.end(),
}

/** @type {Mode[]} */
export const modes = [pipe, pty]

/** Starts a run, and talks with it. It ends with the test. */
export function converse(t, mode, { spawnOwned }, command, args, options) {
  const child = spawnOwned(command, args, { ...mode.options, ...options })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  return new Conversation(mode, child)
}

class Conversation {
  mode
  #waiting = new Set()
  said = ''
  /** When it was last heard of, in the time of `performance`. */
  lastAt

  constructor(mode, child) {
    this.mode = mode
    this.child = child
    mode.listen(child, (text) => {
      this.said += text
      this.lastAt = performance.now()
      for (const check of this.#waiting) check()
    })
    child.on('close', () => {
      for (const check of this.#waiting) check(true)
    })
  }

  /** Resolves when it has said so. */
  hears(text) {
    return new Promise((resolve, reject) => {
      const check = (isOver) => {
        if (this.said.includes(text)) resolve()
        else if (isOver) reject(new Error(`it ended, and has said only ${JSON.stringify(this.said)}`))
        else return
        this.#waiting.delete(check)
      }
      this.#waiting.add(check)
      check(false)
    })
  }

  say(text) {
    this.mode.say(this.child, text)
  }

  hangUp() {
    this.mode.hangUp(this.child)
  }
}
