// A run with a terminal, and what a person would do there: read and type.
import { spawnOwned } from 'spawn-owned'

/** Starts a command with a terminal. It ends with the test `t`. `said` is all its output so far. */
export function openTerminal(t, command, args = [], options = {}) {
  const child = spawnOwned(command, args, { pty: true, graceMs: 2000, ...options })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  return new Terminal(child)
}

class Terminal {
  said = ''
  #waiting = new Set()

  constructor(child) {
    this.child = child
    this.closed = new Promise((resolve) => child.once('close', resolve))
    child.stdout.setEncoding('utf8').on('data', (text) => {
      this.said += text
      for (const check of this.#waiting) check()
    })
  }

  type(text) {
    this.child.stdin.write(text)
  }

  /** Resolves with the match as soon as the output since the last call matches. */
  async sees(pattern, timeoutMs = 20_000) {
    const from = this.#seen
    const match = await new Promise((resolve, reject) => {
      const settle = (how, value) => {
        clearTimeout(timer)
        this.#waiting.delete(check)
        how(value)
      }
      const check = () => {
        const found = pattern.exec(this.said.slice(from))
        if (found) settle(resolve, found)
      }
      const failure = () =>
        new Error(
          `${pattern} did not appear within ${timeoutMs} ms; the output was:\n${this.said.slice(from)}`,
        )
      const timer = setTimeout(() => settle(reject, failure()), timeoutMs)
      this.#waiting.add(check)
      check()
    })
    this.#seen = from + match.index + match[0].length
    return match
  }

  #seen = 0
}
