/**
 * The cost of a live run without its command: memory of the helpers and of the bot, and CPU while
 * idle.
 */

import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { anonymousKb, helpersOf, memoryKb, sum, threads } from '../lib/proc.mjs'
import { NODE, OURS } from '../lib/subjects.mjs'
import { withWorkers } from '../lib/workers.mjs'
import { absoluteRow } from '../report/rows.mjs'

const RUNS = 50
const IDLE_MS = 5000
/** One renewal of the lease may fall into the window: a timer fires, a write, a timer is set. */
const HEARTBEAT = { cpuMs: 2, switches: 4 }

export const name = 'memory'
export const worker = { anonymousKb, hold, release }

export async function bench({ quick, progress }) {
  return withWorkers(import.meta.url, [OURS, NODE], { execArgv: ['--expose-gc'] }, async (workers) => {
    progress('memory')
    const costs = {}
    for (const bot of workers) costs[bot.label] = await memoryOf(bot)
    progress('idle')
    const idle = await idleCost(workers, costs, quick ? 2000 : IDLE_MS)
    for (const bot of workers) await bot.call('release')
    return [...memoryRows(costs), ...idleRows(idle, quick ? 2000 : IDLE_MS)]
  })
}

async function memoryOf(bot) {
  // One run before: what is loaded or started on first use is not a cost of the run.
  await bot.call('hold', { count: 1 })
  await bot.call('release')
  const before = await bot.call('anonymousKb')
  const pids = await bot.call('hold', { count: RUNS })
  const after = await bot.call('anonymousKb')
  const { keepers, others } = helpersOf(bot.pid, pids)
  return {
    keepers,
    others,
    growthKb: (after - before) / RUNS,
    keeperKb: sum(keepers.map((pid) => memoryKb(pid))) / RUNS,
    othersKb: sum(others.map((pid) => memoryKb(pid))) / RUNS,
  }
}

function memoryRows({ [OURS]: ours, [NODE]: theirs }) {
  const { keeperKb, othersKb, growthKb } = ours
  return [
    absoluteRow({
      bench: name,
      what: 'memory per live run outside the command',
      target: { atMost: 1024, text: '≤ 1 MB' },
      value: keeperKb + othersKb + growthKb,
      unit: 'kB',
      others: { [`${NODE}, growth of the bot`]: theirs.growthKb },
      note: `keeper ${keeperKb.toFixed(0)}, share of the zygote and the waiting ${othersKb.toFixed(0)}, growth of the bot ${growthKb.toFixed(0)} kB; ${RUNS} runs`,
    }),
  ]
}

/** CPU and wake-ups of idle bots and helpers, each over the same window. */
async function idleCost(workers, costs, windowMs) {
  const look = () =>
    workers.map(({ pid, label }) => ({
      bot: threads(pid),
      helpers: [...costs[label].keepers, ...costs[label].others].map(threads),
    }))
  await delay(1500)
  const before = look()
  await delay(windowMs)
  const after = look()
  return Object.fromEntries(
    workers.map(({ label }, i) => [
      label,
      {
        bot: difference(before[i].bot, after[i].bot),
        helpers: total(before[i].helpers.map((threads, j) => difference(threads, after[i].helpers[j]))),
      },
    ]),
  )
}

function idleRows({ [OURS]: ours, [NODE]: theirs }, windowMs) {
  const all = total([ours.bot, ours.helpers])
  return [
    absoluteRow({
      bench: name,
      what: `CPU of ${RUNS} idle runs over ${windowMs / 1000} s`,
      target: {
        atMost: theirs.bot.cpuMs + HEARTBEAT.cpuMs,
        text: `≤ ${HEARTBEAT.cpuMs} ms (lease heartbeat)`,
      },
      value: all.cpuMs,
      unit: 'ms',
      others: { [NODE]: theirs.bot.cpuMs },
      note: `bot ${ours.bot.cpuMs.toFixed(2)} ms, helpers ${ours.helpers.cpuMs.toFixed(2)} ms`,
    }),
    absoluteRow({
      bench: name,
      what: `wake-ups of ${RUNS} idle runs over ${windowMs / 1000} s`,
      target: {
        also: ours.helpers.switches === 0,
        atMost: theirs.bot.switches + HEARTBEAT.switches,
        text: `≤ ${HEARTBEAT.switches} (lease heartbeat)`,
      },
      value: all.switches,
      unit: 'switches',
      others: { [NODE]: theirs.bot.switches },
      note: `bot ${ours.bot.switches}, helpers ${ours.helpers.switches}`,
    }),
  ]
}

function difference(before, after) {
  return total(
    [...after].map(([tid, { cpuMs, switches }]) => ({
      cpuMs: cpuMs - (before.get(tid)?.cpuMs ?? 0),
      switches: switches - (before.get(tid)?.switches ?? 0),
    })),
  )
}

function total(costs) {
  return { cpuMs: sum(costs.map((cost) => cost.cpuMs)), switches: sum(costs.map((cost) => cost.switches)) }
}

// ---- in the measured bot ----------------------------------------------------------------------

const held = new Set()
process.on('exit', () => {
  for (const child of held) child.kill('SIGKILL')
})

async function hold(start, { count }) {
  const children = Array.from({ length: count }, () => start('sleep', ['120'], { stdio: 'pipe' }))
  for (const child of children) {
    held.add(child)
    // As in a real bot: a stream with a listener costs more.
    child.stdout.on('data', ignore)
    child.stderr.on('data', ignore)
  }
  await Promise.all(children.map((child) => once(child, 'spawn')))
  return children.map((child) => child.pid)
}

function ignore() {}

async function release() {
  const closed = [...held].map((child) => once(child, 'close'))
  for (const child of held) child.kill('SIGKILL')
  await Promise.all(closed)
  held.clear()
}
