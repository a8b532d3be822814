/** A bot as the stage has it. */

import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { ProcessHandle } from './witness.mjs'

const program = fileURLToPath(new URL('./bot.mjs', import.meta.url))
/** So that it can run out of them, in no time. */
const DESCRIPTORS = 400

export class Bot {
  /** Why it is expected to end, or has; undefined while nobody has done anything to it. */
  expected
  complaint = ''
  /** As the system sees it when it has had one run, and when its last one is over. */
  before
  after
  hasLostZygote = false
  /** libuv keeps the descriptor by which it hears of files until its loop ends. */
  hasWatched = false
  channelsLost = 0
  #child
  #answers = new Map()
  #next = 0
  #hear

  /** `hear(message)`: what it says unasked. */
  constructor(name, { options, env, user, hear }) {
    this.name = name
    this.#hear = hear
    const line = `ulimit -n ${DESCRIPTORS}; exec "$@"`
    const command = ['-c', line, 'sh', process.execPath, program, JSON.stringify(options)]
    const as = { env: { ...process.env, ...env }, stdio: 'pipe', detached: true, ...user }
    this.#child = spawn('sh', command, as)
    this.process = new ProcessHandle(this.#child.pid)
    this.#child.stdin.on('error', () => {})
    this.#child.stderr.on('data', (text) => (this.complaint += text))
    createInterface({ input: this.#child.stdout }).on('line', (said) => this.#listen(JSON.parse(said)))
    this.ready = new Promise((resolve) => this.#answers.set('ready', resolve))
    /** `[code, signal]`, when all that it has said was heard. */
    this.ended = new Promise((resolve) => {
      this.#child.on('error', () => {})
      this.#child.on('close', (...how) => {
        for (const settle of this.#answers.values()) settle({ isGone: true })
        this.#answers.clear()
        resolve(how)
      })
    })
  }

  get facts() {
    const { name, expected, how, complaint, before, after, hasLostZygote, hasWatched, channelsLost } = this
    const said = complaint.slice(-2000)
    return { name, expected, how, complaint: said, before, after, hasLostZygote, hasWatched, channelsLost }
  }

  get isUp() {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** `settle` is given `{ result }`, `{ error }` or `{ isGone }` before anything else is heard of the bot. */
  ask(order, args, settle) {
    const id = this.#next++
    this.#answers.set(id, settle)
    this.#child.stdin.write(`${JSON.stringify({ id, order, args })}\n`)
  }

  #listen(said) {
    const id = said.ready ? 'ready' : said.id
    if (id === undefined) return this.#hear(said)
    const settle = this.#answers.get(id)
    this.#answers.delete(id)
    settle(said)
  }
}
