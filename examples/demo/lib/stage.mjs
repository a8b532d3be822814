/**
 * A bot with its agent's tree, and the witness that shows whether the tree is alive.
 *
 * The witness is a socket. Every process of the tree holds its far end. The demo reads end of file
 * at the near end when all of them are gone. When the near end closes, all processes of the tree
 * exit. The kernel also closes it if the demo is killed, so no process outlives the demo.
 */

import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { cast, others } from './cast.mjs'
import { allPids, carries, descriptor, isAlive, look, programOf } from './proc.mjs'

const program = fileURLToPath(new URL('../bot.mjs', import.meta.url))
const START_LIMIT_MS = 10_000
const CLEAN_UP_LIMIT_MS = 5_000

const open = new Set()

/** Terminates all processes that are left. Used when the demo exits in the middle of a scene. */
export async function clearAllStages() {
  await Promise.all([...open].map((stage) => stage.clear()))
}

async function ask(bot, action) {
  bot.send(action)
  const died = once(bot, 'exit').then(() => {
    throw new Error(`the bot exited during ${action}`)
  })
  const [result] = await Promise.race([once(bot, 'message'), died])
  return result
}

export class Stage {
  /** The processes of the tree, `{ pid, start, name }`, as they wrote it to the witness. */
  members = []
  /** `{ pid, start }` */
  bot
  /** The helper processes of spawn-owned: zygote, keepers, exec stubs. Empty for a plain bot. */
  helpers = []
  /** The time when the last process of the tree exited, according to the witness. */
  goneAt
  #kind
  #folder = mkdtempSync(join(tmpdir(), 'spawn-owned-demo-'))
  #registry = join(this.#folder, 'process-registry.json')
  #child
  #witness
  #witnessId
  #mark = `SPAWN_OWNED_DEMO=${randomUUID()}`
  #ended

  /** Starts a bot of bot.mjs, and waits until its agent's tree is complete. */
  static async open(kind) {
    const stage = new Stage(kind)
    await stage.#complete()
    return stage
  }

  constructor(kind) {
    this.#kind = kind
    this.#child = this.#startBot(kind, 'pipe')
    open.add(this)
    this.bot = look(this.#child.pid)
    this.#witnessId = descriptor(this.#child.pid, 3)
    this.#witness = this.#child.stdio[3]
    this.#ended = new Promise((resolve) => {
      this.#witness.once('end', () => {
        this.goneAt = performance.now()
        resolve()
      })
    })
    // A killed process with unread data resets the connection. The `end` event still follows.
    this.#witness.on('error', () => {})
  }

  /**
   * Starts the bot in its own session, so that Ctrl-C reaches only the demo, which then cleans up.
   */
  #startBot(kind, witness) {
    const [variable, value] = this.#mark.split('=')
    return spawn(process.execPath, [program, kind], {
      stdio: ['ignore', 'inherit', 'inherit', witness, 'ipc'],
      detached: true,
      env: { ...process.env, [variable]: value, SPAWN_OWNED_REGISTRY: this.#registry },
    })
  }

  /** The number of processes, without the bot and its helpers. */
  get size() {
    return cast.length + (others[this.#kind]?.length ?? 0)
  }

  async #complete() {
    createInterface({ input: this.#witness }).on('line', (line) => {
      const [name, pid, start] = line.split('\t')
      this.members.push({ name, pid: Number(pid), start })
    })
    const deadline = performance.now() + START_LIMIT_MS
    while (this.members.length < this.size || this.#wrapperIsAlive()) {
      if (this.goneAt !== undefined) throw new Error('the agent ended before its tree was complete')
      if (performance.now() > deadline) {
        throw new Error(
          `only ${this.members.length} of ${this.size} processes started within ${START_LIMIT_MS / 1000} s`,
        )
      }
      await sleep(10)
    }
    this.helpers = this.#findHelpers()
  }

  /** Whether a wrapper, which starts another process and then exits, is still alive. */
  #wrapperIsAlive() {
    const known = new Set([this.bot.pid, ...this.members.map((member) => member.pid)])
    return this.members.some((member) => {
      const parent = look(member.pid)?.parent
      return !known.has(parent) && carries(parent, this.#mark) && descriptor(parent, 3) === this.#witnessId
    })
  }

  /** Finds the bot's descendants that are not part of the tree. */
  #findHelpers() {
    const processes = allPids().map(look)
    const members = new Set(this.members.map(({ pid }) => pid))
    const keeper = look(this.members.find(({ name }) => name === 'agent').pid)?.parent
    const below = [this.bot]
    for (const { pid } of below) below.push(...processes.filter((process) => process?.parent === pid))
    return below
      .slice(1)
      .filter(({ pid }) => !members.has(pid))
      .map((helper) => ({ ...helper, name: programOf(helper.pid), keepsTheTree: helper.pid === keeper }))
  }

  get botIsAlive() {
    return isAlive(this.bot)
  }

  alive() {
    return this.members.filter(isAlive)
  }

  /**
   * Whether the run's keeper is gone, and all helpers if the bot is gone. Polls, because they exit
   * last.
   */
  async helpersGone() {
    for (let i = 0; i < 50; i++) {
      const alive = this.helpers.filter(isAlive)
      if (!alive.some(({ keepsTheTree }) => keepsTheTree || !this.botIsAlive)) return true
      await sleep(10)
    }
    return false
  }

  /** Makes the bot execute an action, and resolves with the result. */
  ask(action) {
    return ask(this.#child, action)
  }

  /** Starts the next bot, and makes it execute an action. */
  async askNext(action) {
    const bot = this.#startBot('next', 'ignore')
    try {
      return await ask(bot, action)
    } finally {
      const ended = once(bot, 'exit')
      bot.disconnect()
      await ended
    }
  }

  /** The content of the registry file. */
  get registry() {
    return readFileSync(this.#registry, 'utf8')
  }

  /** Kills the bot. Its PID cannot be reused, because it is an unreaped child of the demo. */
  async killBot() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const exit = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await exit
  }

  /**
   * Watches the tree until it is gone, or for `limitMs`. Returns when each process ended, in ms
   * since `since`: `[{ name, pid, start, ms }]`, in the order of their end.
   */
  async watch(since, limitMs) {
    const ends = []
    let left = this.members
    while (left.length > 0 && performance.now() - since < limitMs) {
      await sleep(3)
      const ms = performance.now() - since
      const still = left.filter(isAlive)
      for (const member of left) if (!still.includes(member)) ends.push({ ...member, ms })
      left = still
    }
    if (left.length === 0) await Promise.race([this.#ended, sleep(1000, undefined, { ref: false })])
    return ends
  }

  /**
   * Kills the bot and all processes that the scene left. Resolves when the witness reports that
   * they are gone.
   */
  async clear() {
    await this.killBot()
    this.#witness.end()
    const deadline = performance.now() + CLEAN_UP_LIMIT_MS
    // All processes exit when the witness closes. One that cannot, for example a stopped one, is
    // killed.
    let delayMs = 1000
    while (this.goneAt === undefined && performance.now() < deadline) {
      await Promise.race([this.#ended, sleep(delayMs)])
      if (this.goneAt === undefined) this.#killLeftovers()
      delayMs = 50
    }
    // A process closes the witness a moment before it is gone.
    while (this.alive().length > 0 && performance.now() < deadline) await sleep(5)
    this.#witness.destroy()
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 10 })
    open.delete(this)
    const left = this.alive()
    if (left.length > 0) throw new Error(`could not kill ${left.map(({ pid }) => pid).join(', ')}`)
  }

  /**
   * Kills every process that has two of three proofs that it belongs to this tree: it holds the
   * witness, it has this stage's mark in its environment, it wrote its PID and start time to the
   * witness.
   */
  #killLeftovers() {
    for (const pid of allPids()) {
      const proofs = [
        descriptor(pid, 3) === this.#witnessId,
        carries(pid, this.#mark),
        this.members.some((member) => member.pid === pid && isAlive(member)),
      ]
      if (pid === process.pid || proofs.filter(Boolean).length < 2) continue
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // The process has exited meanwhile.
      }
    }
  }
}
