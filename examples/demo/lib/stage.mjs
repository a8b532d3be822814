/**
 * A bot with its agent's tree, and the witness that says whether the tree lives.
 *
 * The witness is one socket. Every process of the tree holds its far end: end of file at the near end is the kernel's
 * word that all of them are gone. Closing the near end asks whoever still holds the far one to leave, and it closes by
 * itself if the demo is killed: nothing outlives the demo.
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

/** Ends everything that is still there, for an exit in the middle of a scene. */
export async function clearAllStages() {
  await Promise.all([...open].map((stage) => stage.clear()))
}

async function ask(bot, action) {
  bot.send(action)
  const died = once(bot, 'exit').then(() => {
    throw new Error(`the bot died of ${action}`)
  })
  const [result] = await Promise.race([once(bot, 'message'), died])
  return result
}

export class Stage {
  /** The tree's processes, `{ pid, start, name }`, as they announced themselves. */
  members = []
  /** `{ pid, start }` */
  bot
  /** What spawn-owned has put between the bot and the tree, and beside it; nothing for a plain bot. */
  helpers = []
  /** When the witness saw the last process of the tree go. */
  goneAt
  #kind
  #folder = mkdtempSync(join(tmpdir(), 'spawn-owned-demo-'))
  #registry = join(this.#folder, 'process-registry.json')
  #child
  #witness
  #witnessId
  #mark = `SPAWN_OWNED_DEMO=${randomUUID()}`
  #ended

  /** Starts a bot, one of bot.mjs's, and waits until its agent's tree is complete. */
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
    // Whoever was killed with something unread resets the connection; the end still follows.
    this.#witness.on('error', () => {})
  }

  /** In a session of its own: Ctrl-C is for the demo, which then clears up. */
  #startBot(kind, witness) {
    const [variable, value] = this.#mark.split('=')
    return spawn(process.execPath, [program, kind], {
      stdio: ['ignore', 'inherit', 'inherit', witness, 'ipc'],
      detached: true,
      env: { ...process.env, [variable]: value, SPAWN_OWNED_REGISTRY: this.#registry },
    })
  }

  /** How many processes there are besides the bot and its helpers. */
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
        throw new Error(`only ${this.members.length} of ${this.size} processes started`)
      }
      await sleep(10)
    }
    this.helpers = this.#findHelpers()
  }

  /** Whether one of those that start another process and then exit has not exited yet. */
  #wrapperIsAlive() {
    const known = new Set([this.bot.pid, ...this.members.map((member) => member.pid)])
    return this.members.some((member) => {
      const parent = look(member.pid)?.parent
      return !known.has(parent) && carries(parent, this.#mark) && descriptor(parent, 3) === this.#witnessId
    })
  }

  /** Everything below the bot that is not of the tree. */
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

  /** Whether the run's keeper is gone, and all the others too if the bot is. They go last, hence the patience. */
  async helpersGone() {
    for (let i = 0; i < 50; i++) {
      const alive = this.helpers.filter(isAlive)
      if (!alive.some(({ keepsTheTree }) => keepsTheTree || !this.botIsAlive)) return true
      await sleep(10)
    }
    return false
  }

  /** Asks the bot to do something, and resolves with the result. */
  ask(action) {
    return ask(this.#child, action)
  }

  /** The same of the bot that comes after this one. */
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

  /** What `cat` would show. */
  get registry() {
    return readFileSync(this.#registry, 'utf8')
  }

  /** The bot is our own child: its number cannot have changed hands. */
  async killBot() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const exit = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await exit
  }

  /**
   * Watches the tree until it is gone, or for `limitMs`. Returns when each process went, in ms since `since`:
   * `[{ name, pid, start, ms }]` in the order of their end.
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

  /** Ends the bot and whatever the scene has left behind, and returns when the witness says that it is gone. */
  async clear() {
    await this.killBot()
    this.#witness.end()
    const deadline = performance.now() + CLEAN_UP_LIMIT_MS
    // Everybody leaves when asked. Who cannot, because somebody stopped it, say, is killed.
    let patience = 1000
    while (this.goneAt === undefined && performance.now() < deadline) {
      await Promise.race([this.#ended, sleep(patience)])
      if (this.goneAt === undefined) this.#killLeftovers()
      patience = 50
    }
    // A process lets go of the witness a moment before it is gone.
    while (this.alive().length > 0 && performance.now() < deadline) await sleep(5)
    this.#witness.destroy()
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 10 })
    open.delete(this)
    const left = this.alive()
    if (left.length > 0) throw new Error(`could not end ${left.map(({ pid }) => pid).join(', ')}`)
  }

  /**
   * Two proofs out of three that a process is of this tree, or it is not touched: it holds the witness, it carries this
   * stage's mark in its environment, it is one that announced itself, with the same start time.
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
        // Gone in the meantime.
      }
    }
  }
}
