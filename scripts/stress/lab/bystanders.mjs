/** Processes of no run. None of them may end, whatever the bots do. */

import { spawn } from 'node:child_process'
import { program } from '../../../__test__/support/fixtures.mjs'
import { ProcessHandle } from './witness.mjs'

/** A process that takes longer to become ready counts as not started. */
export const STANDS_MS = 10_000

export class Bystanders {
  #stage
  #all = []
  #waiting = new Map()

  constructor(stage) {
    this.#stage = stage
  }

  get pids() {
    return this.#all.map(({ pid }) => pid)
  }

  get facts() {
    return this.#all.map(({ who, pid, endedAt }) => ({ who, pid, endedAt }))
  }

  /** Notes which bystanders have ended by this step. */
  look(step) {
    for (const bystander of this.#all)
      if (bystander.endedAt === undefined && bystander.witness.isGone()) bystander.endedAt = step
  }

  /**
   * A shell that waits for a cookie. It becomes a bystander when it carries one. Undefined, if the
   * lab cannot fork.
   */
  addWaiting(name, variable) {
    const witness = this.#stage.witnessOf(name)
    // Without its stdin: the fixture exits at the end of its stdin.
    const line = `read -r cookie; export ${variable}="$cookie"; exec "$0" "$1" </dev/null`
    const as = { stdio: ['pipe', 'ignore', 'ignore'], detached: true, ...this.#stage.asUser }
    const child = spawn('sh', ['-c', line, program('stays'), witness.path], as)
    child.on('error', () => {})
    child.stdin?.on('error', () => {})
    if (child.pid === undefined) return undefined
    const waiting = { child, witness, process: new ProcessHandle(child.pid) }
    this.#waiting.set(name, waiting)
    this.#stage.remedies.set(`the wait of ${name}`, () => this.#discard(waiting))
    return waiting
  }

  waiting(name) {
    return this.#waiting.get(name)
  }

  /** From here on it carries the cookie, and must survive. */
  async carries(name, cookie, who) {
    const { child, witness, process } = this.#waiting.get(name)
    this.#waiting.delete(name)
    child.stdin.end(`${cookie}\n`)
    const stands = await witness.ready(1, STANDS_MS).then(
      () => true,
      () => false,
    )
    if (!stands) return false
    this.#stage.remedies.delete(`the wait of ${name}`)
    this.#all.push({ who, pid: process.pid, witness, process })
    return true
  }

  /**
   * A process of no run: a fixture, with the PID `pid` if given. False, if that is not possible.
   */
  async add(name, { who, pid, before, fixture = 'stays', args = [], isSlow = false, ...options }) {
    const witness = this.#stage.witnessOf(name)
    const file = program(fixture)
    before?.()
    const as = { stdio: 'ignore', detached: true, ...this.#stage.asUser, ...options }
    const child = spawn(file, [witness.path, ...args], as)
    child.on('error', () => {})
    const bystander = { who, pid: child.pid, witness, process: new ProcessHandle(child.pid) }
    if (pid === undefined ? child.pid === undefined : child.pid !== pid) return this.#discard(bystander)
    // A process that waits for a lock may wait long. Until it holds the lock, it is no bystander.
    const stands = await witness.ready(1, isSlow ? 300 : STANDS_MS).then(
      () => true,
      () => false,
    )
    if (!stands) return this.#discard(bystander)
    this.#all.push(bystander)
    return bystander
  }

  #discard(bystander) {
    bystander.witness.release()
    bystander.process.signal('SIGKILL')
    return false
  }

  /** Ends a bystander that is no longer needed. */
  dismiss(bystander) {
    this.#all = this.#all.filter((it) => it !== bystander)
    bystander.process.signal('SIGKILL')
  }
}
