// The ways to connect a run with its bot, and their differences. What must hold for each is tested
// `for (const mode of modes)`.
import { isWindows } from './system.mjs'

/**
 * @typedef Mode
 * @property {string} name
 * @property {object} options   spawn options; they can be sent as JSON
 * @property {(child, hear: (text: string) => void) => void} listen   to the output of the run
 * @property {(child, text: string) => void} say
 * @property {(child) => void} hangUp   ends the input of the run
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

/** Input and output share one terminal, which echoes its input. */
const pty = {
  name: 'pty',
  options: { pty: true },
  listen(child, hear) {
    child.stdout.setEncoding('utf8').on('data', hear)
  },
  // The key, not the character: on Windows they differ.
  say: (child, text) => child.stdin.write(isWindows ? text.replaceAll('\n', '\r') : text),
  hangUp: (child) => child.stdin.end(),
}

/** @type {Mode[]} */
export const modes = [pipe, pty]

/** Starts a run and communicates with it. It ends with the test. */
export function converse(t, mode, { spawnOwned }, command, args, options) {
  const child = spawnOwned(command, args, { ...mode.options, ...options })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  return new Conversation(mode, child)
}

class Conversation {
  mode
  #waiting = new Set()
  said = ''
  /** When it last wrote, in the time of `performance`. */
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

  /** Resolves when the output contains `text`. */
  hears(text) {
    return new Promise((resolve, reject) => {
      const check = (isOver) => {
        if (this.said.includes(text)) resolve()
        else if (isOver) reject(new Error(`it ended; its output was only ${JSON.stringify(this.said)}`))
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
