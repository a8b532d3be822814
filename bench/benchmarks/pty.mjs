/** Terminals, with the API of node-pty on both sides: spawn to first byte, throughput, memory. */

import { setTimeout as delay } from 'node:timers/promises'
import { anonymousKb, helpersOf, memoryKb, sum } from '../lib/proc.mjs'
import { NODE_PTY, OUR_PTY } from '../lib/subjects.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { absoluteRow, ratioRow } from '../report/rows.mjs'

const MIB = 1024 * 1024
const BLOCK = 64 * 1024
const TERMINALS = 50
const BOTH = [OUR_PTY, NODE_PTY]

export const name = 'pty'
export const worker = { stream, lost, firstByte, call, anonymousKb, hold, release }

export async function bench({ quick, progress }) {
  progress('throughput')
  const throughput = await throughputRow(quick)
  progress('spawn')
  const spawns = await spawnRows(quick)
  progress('memory')
  return [throughput, ...spawns, await memoryRow()]
}

async function throughputRow(quick) {
  const mib = quick ? 64 : 256
  const samples = { [OUR_PTY]: [], [NODE_PTY]: [] }
  const incomplete = { [OUR_PTY]: 0, [NODE_PTY]: 0 }
  for (let generation = 0; generation < (quick ? 2 : 5); generation++) {
    await withWorkers(import.meta.url, BOTH, {}, async (workers) => {
      await interleave(workers, 1, 'stream', { mib: 16 })
      for (const bot of workers) await bot.call('lost')
      const more = await interleave(workers, 3, 'stream', { mib }, 120_000)
      for (const bot of workers) {
        samples[bot.label].push(...more[bot.label])
        incomplete[bot.label] += await bot.call('lost')
      }
    })
  }
  const runs = samples[OUR_PTY].length
  return ratioRow({
    bench: name,
    what: `terminal throughput, ${mib} MiB`,
    against: NODE_PTY,
    target: { atLeast: 1.0, also: incomplete[OUR_PTY] === 0 },
    unit: 'MiB/s',
    ours: samples[OUR_PTY],
    theirs: samples[NODE_PTY],
    note: `output incomplete at the exit: ours in ${incomplete[OUR_PTY]} of ${runs} runs, node-pty in ${incomplete[NODE_PTY]}`,
  })
}

async function spawnRows(quick) {
  const rounds = quick ? 30 : 150
  const measured = await withWorkers(import.meta.url, BOTH, {}, async (workers) => {
    await interleave(workers, 5, 'firstByte')
    const first = await interleave(workers, rounds, 'firstByte')
    return { first, call: await interleave(workers, rounds, 'call') }
  })
  const row = (what, { [OUR_PTY]: ours, [NODE_PTY]: theirs }) =>
    ratioRow({ bench: name, what, against: NODE_PTY, ours, theirs })
  return [
    row('terminal: spawn to first byte', measured.first),
    row('terminal: time spawn() blocks the event loop', measured.call),
  ]
}

async function memoryRow() {
  return withWorkers(import.meta.url, BOTH, { execArgv: ['--expose-gc'] }, async (workers) => {
    const costs = {}
    for (const bot of workers) {
      await bot.call('hold', { count: 1 })
      await bot.call('release')
      const before = await bot.call('anonymousKb')
      const pids = await bot.call('hold', { count: TERMINALS })
      const growth = ((await bot.call('anonymousKb')) - before) / TERMINALS
      // node-pty has no helpers: the parent of its commands is the bot.
      const { keepers, others } = helpersOf(bot.pid, pids)
      const helpers = sum([...keepers, ...others].map((pid) => memoryKb(pid))) / TERMINALS
      costs[bot.label] = { growth, helpers }
      await bot.call('release')
    }
    const { growth, helpers } = costs[OUR_PTY]
    return absoluteRow({
      bench: name,
      what: 'memory per live terminal outside the command',
      target: { atMost: 1024, text: '≤ 1 MB' },
      value: growth + helpers,
      unit: 'kB',
      others: { [`${NODE_PTY}, growth of the bot`]: costs[NODE_PTY].growth },
      note: `keeper and other helpers ${helpers.toFixed(0)}, growth of the bot ${growth.toFixed(0)} kB; ${TERMINALS} terminals`,
    })
  })
}

// ---- in the measured bot ----------------------------------------------------------------------

let incomplete = 0
const held = new Set()
process.on('exit', () => {
  for (const terminal of held) terminal.kill('SIGKILL')
})

function stream(spawn, { mib }) {
  return new Promise((resolve) => {
    const expected = mib * MIB
    let received = 0
    const before = performance.now()
    const script = `dd if=/dev/zero bs=${BLOCK} count=${expected / BLOCK} 2>/dev/null`
    const terminal = spawn('sh', ['-c', script], {})
    terminal.onData((data) => {
      received += data.length
    })
    terminal.onExit(() => {
      if (received !== expected) incomplete++
      setImmediate(resolve, received / MIB / ((performance.now() - before) / 1000))
    })
  })
}

/** How many streams ended with incomplete output since the last call. */
function lost() {
  const count = incomplete
  incomplete = 0
  return count
}

function firstByte(spawn) {
  return new Promise((resolve) => {
    const before = performance.now()
    let took
    const terminal = spawn('echo', ['x'], {})
    terminal.onData(() => {
      took ??= performance.now() - before
    })
    terminal.onExit(() => setImmediate(resolve, took))
  })
}

function call(spawn) {
  return new Promise((resolve) => {
    const before = performance.now()
    const terminal = spawn('true', [], {})
    const took = performance.now() - before
    terminal.onExit(() => setImmediate(resolve, took))
  })
}

async function hold(spawn, { count }) {
  for (let i = 0; i < count; i++) {
    const terminal = spawn('sleep', ['120'], {})
    terminal.onData(() => {})
    held.add(terminal)
  }
  await delay(200)
  return [...held].map((terminal) => terminal.pid)
}

async function release() {
  const exits = [...held].map((terminal) => new Promise((resolve) => terminal.onExit(resolve)))
  for (const terminal of held) terminal.kill('SIGKILL')
  await Promise.all(exits)
  held.clear()
}
