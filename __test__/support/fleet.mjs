// examples/fleet with real processes: each test has its own Redis; hosts are folders.
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { connect as connectTo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { exampleWithPeers, importPeer } from '../peers/index.mjs'
import { killWithHelpers, stateOf, until } from './bots.mjs'
import { program } from './fixtures.mjs'
import { isLinux, isNode, NO_PROC, removeFolder } from './system.mjs'
import { openWitness } from './witness.mjs'

/** Why the fleet cannot run, or `false`. */
export const noFleet = whyNot()

function whyNot() {
  if (!isLinux) return NO_PROC
  if (!isNode) return 'the programs of this example are written for Node'
  const { status } = spawnSync('redis-server', ['--version'])
  return status !== 0 && 'needs Redis (Debian: apt-get install redis-server)'
}

/** Lease, grace, lock and retry, in seconds: the lock lasts for the sum of the first three. */
const TIMES = { FLEET_LEASE: '3', FLEET_GRACE: '1', FLEET_MARGIN: '2', FLEET_RETRY: '0.5' }

/**
 * A Redis with an empty fleet and one job that must run once at a time. All of it ends with the
 * test.
 */
export async function startFleet(t, times) {
  const folder = mkdtempSync(join(tmpdir(), 'fleet-'))
  const fleet = new Fleet(t, folder, { ...process.env, ...TIMES, ...times })
  t.after(() => fleet.close())
  await fleet.startRedis()
  return fleet
}

class Fleet {
  #folder
  #redis
  #programs = []
  #hasWorkerHere = false

  constructor(t, folder, env) {
    this.env = { ...env, FLEET_REDIS: join(folder, 'redis.sock') }
    this.#folder = folder
    this.example = exampleWithPeers('fleet')
    this.socket = this.env.FLEET_REDIS
    this.job = new LockedJob(t, folder)
  }

  /** With its files, so that a restarted Redis keeps what it has confirmed. */
  async startRedis() {
    const options = ['--port', '0', '--unixsocket', this.socket, '--save', '', '--appendonly', 'yes']
    this.#redis = spawn('redis-server', [...options, '--dir', this.#folder], { stdio: 'ignore' })
    await until(() => isAnswered(this.socket), 'Redis is up')
  }

  async killRedis() {
    if (this.#redis.exitCode !== null || this.#redis.signalCode !== null) return
    const exit = once(this.#redis, 'exit')
    this.#redis.kill('SIGKILL')
    await exit
  }

  /** Redis last, because other programs would report that it is gone. */
  async close() {
    await Promise.all(this.#programs.map((one) => one.kill()))
    await this.killRedis()
    removeFolder(this.#folder)
    // At process exit, because the last flush of a supervisor of this process would create the
    // folder again.
    if (this.#hasWorkerHere) process.on('exit', () => removeFolder(this.#folder))
  }

  host(name, { socket = this.socket } = {}) {
    const folder = join(this.#folder, name)
    return new Host((file) => this.#start(file, { FLEET_REDIS: socket, FLEET_FOLDER: folder }), folder)
  }

  async #start(file, env) {
    const child = spawn(process.execPath, [join(this.example, file)], {
      env: { ...this.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const one = new Program(child)
    this.#programs.push(one)
    await one.says(/ is up/)
    return one
  }

  /** The output of `node fleet.mjs ARGS`, with any exit code. */
  async cli(...args) {
    const command = [join(this.example, 'fleet.mjs'), ...args]
    const { env } = this
    const { stdout } = await promisify(execFile)(process.execPath, command, { env }).catch((error) => error)
    return stdout.trim()
  }

  cliSync(...args) {
    const command = [join(this.example, 'fleet.mjs'), ...args]
    return execFileSync(process.execPath, command, { env: this.env, encoding: 'utf8' }).trim()
  }

  /** The parts of a worker of this host, in this process. */
  async workerHere(t, host) {
    this.#hasWorkerHere = true
    Object.assign(process.env, TIMES)
    const from = (file) => import(pathToFileURL(join(this.example, file)))
    const [{ runJob }, { Claims }, { connect, thisHost }] = await Promise.all(
      ['run.mjs', 'claims.mjs', 'settings.mjs'].map(from),
    )
    // Synchronously, because other tests do the same.
    Object.assign(process.env, this.env, { FLEET_FOLDER: host.folder })
    const [redis, { supervisor }] = [connect(), thisHost()]
    t.after(() => redis.disconnect())
    return { runJob, supervisor, claims: new Claims(redis) }
  }

  status = async (id) => (await this.cli('status', id)).split('\t')[1]

  /** The state of a job in the queue itself. */
  async inTheQueue(id) {
    const { Queue } = await importPeer('bullmq')
    const { Redis } = await importPeer('ioredis')
    const connection = new Redis(this.socket, { maxRetriesPerRequest: null })
    try {
      const queue = new Queue('agents', { connection })
      const job = await queue.getJob(id)
      const { returnvalue, failedReason, attemptsStarted, stalledCounter } = job
      return { state: await job.getState(), returnvalue, failedReason, attemptsStarted, stalledCounter }
    } finally {
      connection.disconnect()
    }
  }
}

/** A worker and a reaper on their own registry: the fleet sees it as a machine. */
class Host {
  #start

  constructor(start, folder) {
    this.#start = start
    this.folder = folder
  }

  get id() {
    return readFileSync(join(this.folder, 'host-id'), 'utf8')
  }

  async start() {
    await Promise.all([this.startReaper(), this.startWorker()])
    return this
  }

  async startReaper() {
    this.reaper = await this.#start('reaper.mjs')
  }

  async startWorker() {
    this.worker = await this.#start('worker.mjs')
  }
}

class Program {
  said = ''
  #child
  #ended

  constructor(child) {
    this.#child = child
    this.#ended = once(child, 'exit')
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => {
        this.said += text
      })
  }

  get pid() {
    return this.#child.pid
  }

  async says(pattern) {
    const isOver = () => this.#child.exitCode !== null || this.#child.signalCode !== null
    await until(() => pattern.test(this.said) || isOver(), `it prints ${pattern}; so far:\n${this.said}`)
    if (!pattern.test(this.said)) throw new Error(`it ended with this output:\n${this.said}`)
  }

  async signal(signal, state) {
    process.kill(this.pid, signal)
    if (state) await until(() => stateOf(this.pid) === state, `it is in state ${state}`)
  }

  async kill(signal = 'SIGKILL') {
    this.#child.kill(signal)
    const [code, by] = await this.#ended
    return code ?? by
  }

  /** Kills it with its helpers, so that none reacts to the death of another. */
  async killWithHelpers() {
    await killWithHelpers(this.pid)
    await this.#ended
  }
}

/** fixtures/locks-or-reports-overlap.c: its log shows which job ran when. */
class LockedJob {
  #lock
  #finish

  constructor(t, folder) {
    this.witness = openWitness(t)
    this.#lock = join(folder, 'lock')
    this.#finish = join(folder, 'finish')
    writeFileSync(this.#lock, '')
  }

  get command() {
    return [program('locks-or-reports-overlap'), this.witness.path, this.#lock, this.#finish]
  }

  #lines() {
    return readFileSync(this.#lock, 'utf8').trimEnd().split('\n').filter(Boolean)
  }

  /** `['start 1', 'start 2', 'done 2']`. */
  get history() {
    return this.#lines().map((line) => line.split(' ').slice(0, 2).join(' '))
  }

  /** Resolves with the PIDs of its two processes. */
  async started(epoch) {
    const line = () => this.#lines().find((it) => it.startsWith(`start ${epoch} `))
    await until(line, `epoch ${epoch} has started`, 60_000)
    return line().split(' ').slice(2).map(Number)
  }

  finish() {
    writeFileSync(this.#finish, '')
  }
}

function isAnswered(path) {
  return new Promise((resolve) => {
    const socket = connectTo(path, () => resolve(true)).on('error', () => resolve(false))
    socket.on('connect', () => socket.destroy())
  })
}

/** A proxy to Redis that can be interrupted and restored. */
export async function openRoad(t, fleet) {
  const path = `${fleet.socket}.road`
  const travellers = new Set()
  let isCut = false
  const server = createServer((near) => {
    if (isCut) return near.destroy()
    const far = connectTo(fleet.socket)
    for (const [one, other] of [
      [near, far],
      [far, near],
    ]) {
      travellers.add(one)
      one.pipe(other).on('error', () => {})
      one.on('close', () => other.destroy())
    }
  })
  server.listen(path)
  await once(server, 'listening')
  const cut = () => {
    isCut = true
    for (const one of travellers) one.destroy()
  }
  const mend = () => {
    isCut = false
  }
  t.after(() => {
    cut()
    server.close()
  })
  return { socket: path, cut, mend }
}
