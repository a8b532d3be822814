/** A bot, as the stage controls it. */

import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { ProcessHandle } from './witness.mjs'

const program = fileURLToPath(new URL('./bot.mjs', import.meta.url))
/** Few, so that a bot runs out of file descriptors quickly. */
const DESCRIPTORS = 400

export class Bot {
  /** Why the lab expects this bot to end. Undefined while the lab has done nothing to it. */
  expected
  complaint = ''
  /** Measured from outside: after its first run, and after its last one. */
  before
  after
  hasLostZygote = false
  /** libuv keeps the file descriptor with which it watches files until its loop ends. */
  hasWatched = false
  wasStopped = false
  spareStopped = false
  /**
   * The bot has passed file descriptors to a worker, and listens at sockets. `deaf`: sockets that
   * no longer answer.
   */
  hasPassedStdout = false
  deaf = []
  channelsLost = 0
  /** Children started with child_process. They survive its shutdown. */
  childrenStarted = 0
  #child
  #answers = new Map()
  #next = 0
  #onMessage

  /** `onMessage(message)` gets the messages that answer no request. */
  constructor(name, { options, env, user, onMessage }) {
    this.name = name
    this.#onMessage = onMessage
    const line = `ulimit -n ${DESCRIPTORS}; exec "$@"`
    const command = ['-c', line, 'sh', process.execPath, program, JSON.stringify(options)]
    const as = { env: { ...process.env, ...env }, stdio: 'pipe', detached: true, ...user }
    this.#child = spawn('sh', command, as)
    this.process = new ProcessHandle(this.#child.pid)
    this.#child.stdin.on('error', () => {})
    this.#child.stderr.on('data', (text) => (this.complaint += text))
    createInterface({ input: this.#child.stdout }).on('line', (message) =>
      this.#dispatch(JSON.parse(message)),
    )
    this.ready = new Promise((resolve) => this.#answers.set('ready', resolve))
    /** `[code, signal]`, after all of its output has been read. */
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
    const { name, expected, how, before, after, deaf } = this
    const { hasLostZygote, hasWatched, channelsLost, childrenStarted } = this
    const complaint = this.complaint.slice(-2000)
    const left = { hasLostZygote, hasWatched, channelsLost, childrenStarted }
    return { name, expected, how, complaint, before, after, deaf, ...left }
  }

  get isUp() {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /**
   * Calls `settle` with `{ result }`, `{ error }` or `{ isGone }` before the next message is read.
   */
  ask(order, args, settle) {
    const id = this.#next++
    this.#answers.set(id, settle)
    this.#child.stdin.write(`${JSON.stringify({ id, order, args })}\n`)
  }

  #dispatch(message) {
    const id = message.ready ? 'ready' : message.id
    if (id === undefined) return this.#onMessage(message)
    const settle = this.#answers.get(id)
    this.#answers.delete(id)
    settle(message)
  }
}
