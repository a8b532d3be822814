// Bots in processes of their own, which do what a test tells them, and the registries they leave.
import assert from 'node:assert/strict'
import { execFile, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { createSupervisor } from 'spawn-owned'
import { program, script } from './fixtures.mjs'
import { isMacos, isWindows, removeFolder } from './system.mjs'
import { openWitness } from './witness.mjs'

/** A bot on this registry, started by `within` if that is given. It goes with the test, and its runs with it. */
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

/** Runs fixtures/does-one-thing.mjs, and resolves with its lines when it has ended. `child` is the script itself. */
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
    // Not at its exit, which may be heard of before its last answer.
    child.on('disconnect', () => this.#fail())
    this.ready = this.#promise(0)
  }

  get pid() {
    return this.#child.pid
  }

  /** Has it carry out an order of fixtures/bot-to-order.mjs. */
  ask(order, ...args) {
    const id = this.#next++
    const answer = this.#promise(id)
    this.#child.send({ id, order, args }, () => {})
    return answer
  }

  signal(signal) {
    process.kill(this.pid, signal)
  }

  /** Resolves with its exit code, or the signal that has ended it. */
  get ended() {
    return this.#ended.then(([code, signal]) => code ?? signal)
  }

  /** SIGKILL, unless it is asked more politely. Its keepers live to see it. */
  async kill(signal = 'SIGKILL') {
    this.#child.kill(signal)
    return await this.ended
  }

  /** The same of bot, zygote and keepers. On Windows there are none. */
  async killWithHelpers() {
    if (isWindows) return await this.kill()
    await killWithHelpers(this.pid)
    await this.ended
  }

  #promise(id) {
    const promise = new Promise((resolve, reject) => this.#answers.set(id, { resolve, reject }))
    // Not everybody who asks a bot that is about to be killed waits for an answer.
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

/** SIGKILL of a bot, its zygote and its keepers, so that none of them gets to do anything about the others. */
export async function killWithHelpers(bot) {
  const zygotes = childrenOf(bot).filter(isHelper)
  const keepers = zygotes.flatMap(childrenOf).filter(isHelper)
  process.kill(bot, 'SIGSTOP')
  await until(() => stateOf(bot) === 'T', 'the bot has stopped')
  const victims = [...zygotes, ...keepers, bot]
  for (const pid of victims) process.kill(pid, 'SIGKILL')
  for (const pid of victims) await gone(pid)
}

// ---- registries ------------------------------------------------------------------------------------------------------

const folders = []

/** The path of a registry in a folder of its own, with these entries if any are given. */
export function freshRegistry(entries) {
  const folder = mkdtempSync(join(tmpdir(), 'registry-'))
  folders.push(folder)
  // Last: what is flushed when the process ends would bring a folder back.
  process.off('exit', removeFolders).on('exit', removeFolders)
  const path = join(folder, 'data', 'process-registry.json')
  if (entries) fill(path, entries)
  return path
}

function removeFolders() {
  for (const folder of folders) removeFolder(folder)
}

/** As if bots had left these entries. */
export function fill(path, entries) {
  mkdirSync(dirname(path))
  writeFileSync(path, JSON.stringify({ version: 1, entries }), { mode: 0o600 })
}

/** This process as one more bot on the registry, and what it is told. */
export function supervise(registryPath, options) {
  const supervisor = createSupervisor({ registryPath, ...options })
  const events = []
  supervisor.on('event', (event) => events.push(event))
  return Object.assign(supervisor, { events })
}

/** The entries of the file, as anybody can read them; none, as long as there is no file. */
export const entriesOf = (path) => (existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).entries : [])

/** When the file has followed. How soon it does is for registry.test.mjs and the bench to tell. */
export async function fileHas(path, count) {
  const has = () => (existsSync(path) ? entriesOf(path).length : -1)
  await until(() => has() === count, `the file has ${count} entries`)
}

/** Every file of the registry with what is in it: what a dry run must not change. */
export function filesOf(path) {
  const folder = dirname(path)
  return readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), 'utf8')])
}

/** A start token with another start, namespace or boot. */
export function altered(token, { pid, start, ns, boot }) {
  const [oldPid, oldStart, oldNs, ...oldBoot] = token.split(':')
  return [pid ?? oldPid, start ?? oldStart, ns ?? oldNs, boot ?? oldBoot.join(':')].join(':')
}

/** One of a process that is not any more. */
export const past = (token) => altered(token, { start: BigInt(token.split(':')[1]) - 1n })

// ---- processes --------------------------------------------------------------------------------------------------------

/** A process that is nobody's run, with a witness of its own. */
export async function bystander(t, { name = 'stays', processes = 1, ...options } = {}) {
  const witness = openWitness(t)
  const child = spawn(program(name), [witness.path], { detached: true, stdio: 'ignore', ...options })
  t.after(() => child.kill('SIGKILL'))
  await witness.ready(processes)
  return { pid: child.pid, child, witness }
}

/** Starts a command below a parent that never waits: it will be a zombie. Resolves with its number. */
export async function neverWaitedFor(t, command, ...args) {
  const line = '"$@" & echo $!; exec sleep 60'
  const parent = spawn('sh', ['-c', line, 'sh', command, ...args], { stdio: ['ignore', 'pipe', 'ignore'] })
  t.after(() => parent.kill('SIGKILL'))
  const pid = Number(await once(parent.stdout, 'data'))
  // A shell would wait; `sleep` does not.
  const name = () =>
    isMacos ? statOf(parent.pid).name : readFileSync(`/proc/${parent.pid}/comm`, 'utf8').trim()
  await until(() => name() === 'sleep', 'the shell is no more')
  return pid
}

export const assertGone = (witness) => assert.ok(witness.isGone(), `processes exist:\n${witness.holders()}`)
export const assertAlive = (witness) => assert.equal(witness.isGone(), false, 'it was ended')

/** The number of its keeper; `undefined`, if it has none. */
export const keeperOf = ({ keeper }) => keeper && Number(keeper.startToken.split(':')[0])

/** Stops a run's keeper, and the zygote, which would wake it. */
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

/** All processes, as a witness that has nothing to do with us sees them: macOS has no /proc, and its `ps` no sessions. */
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
  return quietly(() => basename(readlinkSync(`/proc/${pid}/exe`)).startsWith('spawn-owned-keeper')) ?? false
}

/** As /proc has it; on Windows `R` for all that live. */
export const stateOf = (pid) => quietly(() => (isWindows ? process.kill(pid, 0) && 'R' : statOf(pid).state))

/** For processes with one thread that are neither a witness's nor children of ours. A zombie is gone, and so is who never was. */
export const gone = (pid) =>
  until(() => pid === undefined || [undefined, 'Z', 'X'].includes(stateOf(pid)), `process ${pid} is gone`)

/** All of a group; on Windows, where there are none, its leader. */
export const killGroup = (leader) => process.kill(isWindows ? leader : -leader, 'SIGKILL')

/** The same for all of a group. Descriptors are closed a moment before: a witness that is at its end is not enough. */
export const groupGone = (group) =>
  isWindows
    ? gone(group)
    : until(() => !pids().some((pid) => isAliveIn(group, pid)), `group ${group} is gone`)

function isAliveIn(group, pid) {
  const stat = quietly(() => statOf(pid))
  return stat?.group === group && !['Z', 'X'].includes(stat.state)
}

/** For what tells nobody when it happens. The limit is far beyond any promise: it is for what never does. */
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
