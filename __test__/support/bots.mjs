// Bots in their own processes, which carry out requests of a test, and their registries.
import assert from 'node:assert/strict'
import { execFile, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { createSupervisor } from 'spawn-owned'
import { program, script } from './fixtures.mjs'
import { isLinux, isMacos, isWindows, removeFolder } from './system.mjs'
import { openWitness } from './witness.mjs'

/**
 * A bot on this registry, started by `within` if that is given. The bot and its runs end with the
 * test.
 */
export async function startBot(t, registryPath, { env, leaseMs, within = [] } = {}) {
  const options = JSON.stringify({ registryPath, leaseMs })
  const [command, ...args] = [...within, process.execPath, script('bot-to-order.mjs'), options]
  const child = spawn(command, args, {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { ...process.env, ...env },
  })
  const bot = new Bot(child)
  t.after(() => bot.kill())
  await bot.ready
  return bot
}

/**
 * Runs fixtures/does-one-thing.mjs and resolves with its output lines after its end. `child` is the
 * script.
 */
export function inAScript(path, thing, ...args) {
  const command = [script('does-one-thing.mjs'), thing, ...args.map((arg) => JSON.stringify(arg))]
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: path }
  const ended = promisify(execFile)(process.execPath, command, { env, timeout: 60_000 })
  const lines = ended.then(({ stdout }) =>
    stdout
      .trim()
      .split('\n')
      .map((line) => (line.startsWith('{') || line.startsWith('"') ? JSON.parse(line) : line)),
  )
  return Object.assign(lines, { child: ended.child })
}

class Bot {
  #child
  #answers = new Map()
  #next = 1
  #ended
  complaint = ''

  constructor(child) {
    this.#child = child
    this.#ended = once(child, 'exit')
    child.stderr.on('data', (text) => {
      this.complaint += text
    })
    child.on('message', (answer) => this.#settle(answer))
    // Not at its exit, which may come before its last answer.
    child.on('disconnect', () => this.#fail())
    this.ready = this.#promise(0)
  }

  get pid() {
    return this.#child.pid
  }

  /** Sends a request of fixtures/bot-to-order.mjs. */
  ask(order, ...args) {
    const id = this.#next++
    const answer = this.#promise(id)
    this.#child.send({ id, order, args }, () => {})
    return answer
  }

  signal(signal) {
    process.kill(this.pid, signal)
  }

  /** Resolves with its exit code, or the signal that ended it. */
  get ended() {
    return this.#ended.then(([code, signal]) => code ?? signal)
  }

  /** Sends SIGKILL, or the given signal. Its keepers survive. */
  async kill(signal = 'SIGKILL') {
    this.#child.kill(signal)
    return await this.ended
  }

  /** Kills bot, zygote and keepers. On Windows there are no helpers. */
  async killWithHelpers() {
    if (isWindows) return await this.kill()
    await killWithHelpers(this.pid)
    await this.ended
  }

  #promise(id) {
    const promise = new Promise((resolve, reject) => this.#answers.set(id, { resolve, reject }))
    // A test may send a request to a bot that is about to be killed, and not wait for the answer.
    promise.catch(() => {})
    return promise
  }

  #settle({ id, value, error }) {
    const { resolve, reject } = this.#answers.get(id)
    this.#answers.delete(id)
    if (error) reject(Object.assign(new Error(error.message), { code: error.code }))
    else resolve(value)
  }

  #fail() {
    for (const { reject } of this.#answers.values()) reject(new Error(`the bot is gone:\n${this.complaint}`))
    this.#answers.clear()
  }
}

/** Kills a bot, its zygote and its keepers, so that none reacts to the death of another. */
export async function killWithHelpers(bot) {
  const zygotes = childrenOf(bot).filter(isHelper)
  const keepers = zygotes.flatMap(childrenOf).filter(isHelper)
  process.kill(bot, 'SIGSTOP')
  await until(() => stateOf(bot) === 'T', 'the bot has stopped')
  const victims = [...zygotes, ...keepers, bot]
  for (const pid of victims) process.kill(pid, 'SIGKILL')
  for (const pid of victims) await gone(pid)
}

// ---- registries ---------------------------------------------------------------------------------

const folders = []

/** The path of a registry in its own folder, with these entries if given. */
export function freshRegistry(entries) {
  const folder = mkdtempSync(join(tmpdir(), 'registry-'))
  folders.push(folder)
  // Last, because a flush at process exit would create the folder again.
  process.off('exit', removeFolders).on('exit', removeFolders)
  const path = join(folder, 'data', 'process-registry.json')
  if (entries) fill(path, entries)
  return path
}

function removeFolders() {
  for (const folder of folders) removeFolder(folder)
}

/** Writes these entries, as if bots had left them. */
export function fill(path, entries) {
  mkdirSync(dirname(path))
  writeFileSync(path, JSON.stringify({ version: 1, entries }), { mode: 0o600 })
}

/** This process as one more bot on the registry, with its events. */
export function supervise(registryPath, options) {
  const supervisor = createSupervisor({ registryPath, ...options })
  const events = []
  supervisor.on('event', (event) => events.push(event))
  return Object.assign(supervisor, { events })
}

/** The entries of the file; none if there is no file. */
export const entriesOf = (path) => (existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).entries : [])

/** Waits until the file has `count` entries. registry.test.mjs and the bench check how soon. */
export async function fileHas(path, count) {
  const has = () => (existsSync(path) ? entriesOf(path).length : -1)
  await until(() => has() === count, `the file has ${count} entries`)
}

/** Every file of the registry with its content, which a dry run must not change. */
export function filesOf(path) {
  const folder = dirname(path)
  return readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), 'utf8')])
}

/** A start token with another start, namespace or boot. */
export function altered(token, { pid, start, ns, boot }) {
  const [oldPid, oldStart, oldNs, ...oldBoot] = token.split(':')
  return [pid ?? oldPid, start ?? oldStart, ns ?? oldNs, boot ?? oldBoot.join(':')].join(':')
}

/** The token of an earlier process with the same PID. */
export const past = (token) => altered(token, { start: BigInt(token.split(':')[1]) - 1n })

// ---- processes ----------------------------------------------------------------------------------

/** A process that belongs to no run, with its own witness. */
export async function bystander(t, { name = 'stays', processes = 1, ...options } = {}) {
  const witness = openWitness(t)
  const child = spawn(program(name), [witness.path], { detached: true, stdio: 'ignore', ...options })
  t.after(() => child.kill('SIGKILL'))
  await witness.ready(processes)
  return { pid: child.pid, child, witness }
}

/**
 * Starts a command below a parent that never waits, so it becomes a zombie. Resolves with its PID.
 */
export async function neverWaitedFor(t, command, ...args) {
  const line = '"$@" & echo $!; exec sleep 60'
  const parent = spawn('sh', ['-c', line, 'sh', command, ...args], { stdio: ['ignore', 'pipe', 'ignore'] })
  t.after(() => parent.kill('SIGKILL'))
  const pid = Number(await once(parent.stdout, 'data'))
  // A shell would wait for the child; `sleep` does not.
  const name = () =>
    isMacos ? statOf(parent.pid).name : readFileSync(`/proc/${parent.pid}/comm`, 'utf8').trim()
  await until(() => name() === 'sleep', 'the shell has executed sleep')
  return pid
}

export const assertGone = (witness) => assert.ok(witness.isGone(), `processes exist:\n${witness.holders()}`)
export const assertAlive = (witness) => assert.equal(witness.isGone(), false, 'the process was ended')

/** The PID of its keeper, or `undefined`. */
export const keeperOf = ({ keeper }) => keeper && Number(keeper.startToken.split(':')[0])

/** Stops the keeper of a run, and the zygote, which would continue the keeper. */
export async function stopKeeper(t, record) {
  const keeper = keeperOf(record)
  const helpers = [statOf(keeper).parent, keeper].filter(isHelper)
  for (const pid of helpers) {
    process.kill(pid, 'SIGSTOP')
    t.after(() => quietly(() => process.kill(pid, 'SIGCONT')))
    await until(() => stateOf(pid) === 'T', `helper ${pid} has stopped`)
  }
}

export function statOf(pid) {
  if (isMacos) return listed().find((process) => process.pid === pid) ?? assert.fail(`${pid} is gone`)
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const [state, parent, group, session] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return { state, parent: Number(parent), group: Number(group), session: Number(session) }
}

const pids = () =>
  isMacos
    ? listed().map(({ pid }) => pid)
    : readdirSync('/proc')
        .filter((name) => /^\d+$/.test(name))
        .map(Number)

/**
 * All processes, from a source independent of the product. macOS has no /proc, and its `ps` shows
 * no sessions.
 */
function listed() {
  const lines = execFileSync('ps', ['-axo', 'pid=,ppid=,pgid=,stat=,comm='], { encoding: 'utf8' })
  return lines
    .trim()
    .split('\n')
    .map((line) => {
      const [pid, parent, group, state, ...name] = line.trim().split(/\s+/)
      return { pid: +pid, parent: +parent, group: +group, state: state[0], name: basename(name.join(' ')) }
    })
}

export const childrenOf = (parent) => pids().filter((pid) => quietly(() => statOf(pid).parent === parent))

export function isHelper(pid) {
  if (isMacos) return quietly(() => statOf(pid).name.startsWith('spawn-owned-keep')) ?? false
  // By its name: an unprivileged user cannot read /proc/PID/exe.
  return (
    quietly(() => /^owned-(keeper|zygote|stub)$/.test(readFileSync(`/proc/${pid}/comm`, 'utf8').trim())) ??
    false
  )
}

/** The state as in /proc; on Windows `R` for every live process. */
export const stateOf = (pid) => quietly(() => (isWindows ? process.kill(pid, 0) && 'R' : statOf(pid).state))

/**
 * For processes with one thread that hold no witness and are not our children. A zombie counts as
 * gone, and so does a process that never existed.
 */
export const gone = (pid) =>
  until(() => pid === undefined || [undefined, 'Z', 'X'].includes(stateOf(pid)), `process ${pid} is gone`)

/**
 * Sends SIGKILL, and resolves when the process is dead with all its threads. Until then the kernel
 * still accepts connections at its port. On a busy machine that takes a while.
 */
export async function killed(pid) {
  process.kill(pid, 'SIGKILL')
  await until(() => isDead(pid), `process ${pid} is dead`)
}

/** State Z is that of the main thread. Other threads may still run. */
function isDead(pid) {
  const state = stateOf(pid)
  if (state === 'Z' && isLinux) return (quietly(() => readdirSync(`/proc/${pid}/task`).length) || 0) <= 1
  return [undefined, false, 'Z', 'X'].includes(state)
}

/** Kills a group; on Windows, which has no groups, its leader. */
export const killGroup = (leader) => process.kill(isWindows ? leader : -leader, 'SIGKILL')

/**
 * Resolves when a whole group is dead. EOF at a witness is not enough: file descriptors close a
 * moment earlier.
 */
export const groupGone = (group) =>
  isWindows
    ? gone(group)
    : until(() => !pids().some((pid) => isAliveIn(group, pid)), `group ${group} is gone`)

function isAliveIn(group, pid) {
  const stat = quietly(() => statOf(pid))
  return stat?.group === group && !['Z', 'X'].includes(stat.state)
}

/**
 * Polls for conditions without an event. The limit is far above any promise; it catches what never
 * happens.
 */
export async function until(condition, what, withinMs = 30_000) {
  const giveUpAt = performance.now() + withinMs
  for (;;) {
    const value = await condition()
    if (value) return value
    if (performance.now() > giveUpAt) throw new Error(`not within ${withinMs} ms: ${what}`)
    await delay(2)
  }
}

function quietly(look) {
  try {
    return look()
  } catch {
    return undefined
  }
}
