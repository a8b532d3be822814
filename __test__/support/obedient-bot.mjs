// A bot in its own process that carries out the requests of a test (fixtures/obedient-bot.mjs is
// the other half).
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { script } from './fixtures.mjs'
import { isWindows } from './system.mjs'

/**
 * Starts the bot; it ends with the test `t`. `options` are those of its supervisor. Without them it
 * uses the functions of the package. The rest are options of its process.
 */
export function startBot(t, { options, env, ...more } = {}) {
  const argument = options === undefined ? [] : [JSON.stringify(options)]
  const bot = new Bot(
    spawn(process.execPath, [script('obedient-bot.mjs'), ...argument], {
      env: { ...process.env, ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
      ...more,
    }),
  )
  t.after(() => bot.dismiss())
  return bot
}

class Bot {
  #waiting = new Map()
  #next = 0
  /** Its stderr, including warnings. */
  complaint = ''

  constructor(child) {
    this.child = child
    this.pid = child.pid
    /** `[code, signal]`. */
    this.ended = once(child, 'exit')
    child.stdin.on('error', () => {})
    child.stderr.on('data', (text) => (this.complaint += text))
    createInterface({ input: child.stdout }).on('line', (line) => this.#hear(JSON.parse(line)))
    child.on('close', () => this.#hear(undefined))
  }

  /** The result of the request. Rejects, with its `code`, if it threw. */
  ask(order, ...args) {
    return this.#send({ order, args })
  }

  /** Sends its last request: it calls process.exit() right after. */
  askLast(order, ...args) {
    return this.#send({ order, args, thenExit: true })
  }

  async kill(signal) {
    this.child.kill(signal)
    return await this.ended
  }

  /** Ends the bot. */
  async dismiss() {
    // A test may have stopped it, where that is possible.
    if (!isWindows) this.child.kill('SIGCONT')
    this.child.stdin.end()
    await this.ended
  }

  #send(message) {
    const id = this.#next++
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, order: message.order })
      this.child.stdin.write(`${JSON.stringify({ id, ...message })}\n`)
    })
  }

  #hear(answer) {
    if (answer === undefined) {
      for (const { reject, order } of this.#waiting.values())
        reject(new Error(`the bot ended before it answered ${order}:\n${this.complaint}`))
      return
    }
    const { resolve, reject } = this.#waiting.get(answer.id)
    this.#waiting.delete(answer.id)
    if (answer.error) reject(Object.assign(new Error(answer.error.message), { code: answer.error.code }))
    else resolve(answer.result)
  }
}
