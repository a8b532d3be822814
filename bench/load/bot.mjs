/**
 * The bot under load: `node bot.mjs <subject>`. It gets requests through its IPC channel. When that
 * closes, it exits, with everything it has started.
 *
 * It records every event of each run, and compares the record with what must have happened.
 */

import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout as delay } from 'node:timers/promises'
import { processStat } from '../lib/proc.mjs'
import { summary } from '../lib/stats.mjs'
import { loadSubject } from '../lib/subjects.mjs'

const start = await loadSubject(process.argv[2])
const orders = { live, steady, leftovers }

process.on('message', async ({ order, args }) => {
  try {
    process.send({ value: await orders[order](args) })
  } catch (error) {
    process.send({ error: error.stack })
  }
})
process.on('disconnect', () => process.exit())
process.send('ready')

/**
 * `count` runs at once: the time until all have started, the cost while they idle, and the time
 * until all have ended.
 */
async function live({ count }) {
  const books = new Books()
  const histogram = watchLoop()
  const before = performance.now()
  const runs = Array.from({ length: count }, () => {
    const child = start('/bin/sleep', ['3600'], { stdio: 'ignore' })
    books.enter(child)
    return child
  })
  const called = performance.now()
  await Promise.all(runs.map((child) => once(child, 'spawn')))
  const started = performance.now()
  const [cpu, residentKb] = [process.cpuUsage(), process.memoryUsage.rss() / 1024]
  await delay(3000)
  const idle = process.cpuUsage(cpu)
  const asked = performance.now()
  const over = runs.map((child) => once(child, 'close'))
  for (const child of runs) child.cancel ? child.cancel() : child.kill()
  await Promise.all(over)
  return {
    calledMs: called - before,
    startedMs: started - before,
    idleCpuMs: (idle.user + idle.system) / 1000,
    residentKb,
    endedMs: performance.now() - asked,
    loop: histogram.stop(),
    ...books.sum(),
  }
}

/** The commands, in turn: the output of each, and how it ends. */
const COMMANDS = [
  { command: ['/bin/true', []], output: '', code: 0 },
  { command: ['/bin/sh', ['-c', 'echo hello; exit 3']], output: 'hello\n', code: 3 },
  {
    command: ['/bin/sh', ['-c', 'cat; sleep 0.1 & wait']],
    input: 'some words',
    output: 'some words',
    code: 0,
  },
]

/** Starts `perSecond` runs a second for `seconds`, without waiting for their ends. */
async function steady({ perSecond, seconds }) {
  const books = new Books()
  const histogram = watchLoop()
  const calls = []
  const began = performance.now()
  let most = 0
  for (let i = 0; i < perSecond * seconds; i++) {
    const due = began + (i * 1000) / perSecond
    const early = due - performance.now()
    if (early > 0) await delay(early)
    // If the loop is late, it catches up, but lets the event loop turn in between.
    else await new Promise(setImmediate)
    const { command, input, output, code } = COMMANDS[i % COMMANDS.length]
    const before = performance.now()
    const child = start(...command, { stdio: 'pipe' })
    calls.push(performance.now() - before)
    books.enter(child, { output, code })
    child.stdin.on('error', () => {})
    child.stdin.end(input)
    most = Math.max(most, books.open)
  }
  const late = performance.now() - began - seconds * 1000
  await books.closed()
  return { calls: summary(calls), lateMs: late, most, loop: histogram.stop(), ...books.sum() }
}

/** The events of all runs. Each must come once, and must be true. */
class Books {
  open = 0
  #entries = []
  #onClosed = () => {}

  enter(child, expected) {
    // Without the run itself, so that this entry does not keep the run from garbage collection.
    const entry = { spawn: 0, exit: 0, close: 0, errors: [], output: '', expected, isOurs: 'wait' in child }
    this.#entries.push(entry)
    this.open++
    entry.since = performance.now()
    child.on('spawn', () => entry.spawn++)
    child.on('error', (error) => entry.errors.push(error.message))
    child.on('exit', (code) => {
      entry.exit++
      entry.code = code
      entry.exitMs = performance.now() - entry.since
    })
    child.on('close', () => {
      entry.close++
      if (--this.open === 0) this.#onClosed()
    })
    child.stdout?.on('data', (chunk) => {
      entry.output += chunk
    })
    child.wait?.().then((exit) => {
      entry.reason = exit.reason
    })
  }

  async closed() {
    if (this.open > 0) {
      await new Promise((resolve) => {
        this.#onClosed = resolve
      })
    }
    // A duplicate event would come within this time.
    await delay(500)
  }

  sum() {
    const wrong = this.#entries.flatMap((entry) => faults(entry))
    return {
      runs: this.#entries.length,
      wrong: wrong.length,
      examples: wrong.slice(0, 3),
      exits: summary(this.#entries.map(({ exitMs }) => exitMs ?? Number.NaN)),
    }
  }
}

function faults({ spawn, exit, close, errors, output, code, reason, isOurs, expected }) {
  const found = []
  if (spawn !== 1 || exit !== 1 || close !== 1)
    found.push(`spawn, exit, close came ${[spawn, exit, close]} times`)
  if (errors.length > 0) found.push(`error: ${errors[0]}`)
  if (expected && (output !== expected.output || code !== expected.code))
    found.push(`wrote ${JSON.stringify(output)} and exited with ${code}`)
  if (expected && isOurs && reason !== 'exit') found.push(`its reason is ${reason} instead of exit`)
  return found
}

/** How late the event loop turned, in milliseconds. */
function watchLoop() {
  const histogram = monitorEventLoopDelay({ resolution: 5 })
  histogram.enable()
  return {
    stop() {
      histogram.disable()
      const ms = (nanoseconds) => Math.max(0, nanoseconds / 1e6 - 5)
      return {
        p50: ms(histogram.percentile(50)),
        p90: ms(histogram.percentile(90)),
        p99: ms(histogram.percentile(99)),
        max: ms(histogram.max),
      }
    },
  }
}

/** The resources of this process, for a comparison. */
async function leftovers() {
  global.gc()
  // Spare helpers are not left over from earlier runs, but their count must not grow.
  await delay(500)
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').split(' ').filter(Boolean)
  return {
    descriptors: readdirSync('/proc/self/fd').length,
    threads: readdirSync('/proc/self/task').length,
    children: children.length,
    zombies: children.filter((pid) => processStat(Number(pid))?.state === 'Z').length,
    residentMb: process.memoryUsage.rss() / (1 << 20),
    heapMb: process.memoryUsage().heapUsed / (1 << 20),
    entries: entriesIn(process.env.SPAWN_OWNED_REGISTRY),
  }
}

function entriesIn(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8')).entries.length
  } catch (error) {
    if (error.code === 'ENOENT') return 0
    throw error
  }
}
