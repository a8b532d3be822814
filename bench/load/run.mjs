/**
 * npm run load [-- --minutes 5] [-- --rate 50] [-- --live 1000]
 *
 * Measures a bot with a thousand runs at once, and a bot that starts fifty a second for minutes,
 * while stress-ng uses every CPU. Checks whether an event is lost or doubled, whether something is
 * left, and how late the event loop is. For comparison, measures a bot with child_process for a
 * minute.
 *
 * Prints a table and writes it to bench/results/load.json and load.md. Exits with 1 if a check
 * fails.
 */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { spawnOwned } from 'spawn-owned'
import { installPackages } from '../../scripts/debian.mjs'
import { NODE, OURS } from '../lib/subjects.mjs'
import { thisMachine } from '../report/machine.mjs'
import { plainTable } from '../report/table.mjs'

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '5' },
    rate: { type: 'string', default: '50' },
    live: { type: 'string', default: '1000' },
  },
})
const [minutes, perSecond, count] = [values.minutes, values.rate, values.live].map(Number)
/** Enough for a comparison. */
const THEIR_MINUTES = 1
/** Warm-up before the measured minutes, as a share of them. */
const WARM_UP = 0.2
/**
 * How much the bot may grow. It remembers the last thousand runs, and it does not fully control how
 * much system memory that takes.
 */
const GROWTH_MB = { heap: 10, resident: 40 }

installPackages('Figures under load', ['stress-ng'])

const here = (name) => fileURLToPath(new URL(name, import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), 'spawn-owned-load-'))
process.env.SPAWN_OWNED_REGISTRY = join(scratch, 'process-registry.json')
const processes = new Set()
process.on('exit', () => {
  for (const child of processes) child.kill('SIGKILL')
  rmSync(scratch, { recursive: true, force: true })
})
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1))

const results = {
  [OURS]: await underLoad(OURS, minutes),
  [NODE]: await underLoad(NODE, Math.min(minutes, THEIR_MINUTES)),
}
report(await thisMachine())
process.exit()

async function underLoad(subject, minutes) {
  console.error(`  ${subject}: ${count} at once`)
  const bot = await startBot(subject)
  const live = await bot.ask('live', { count })
  // A warm-up: first use allocates memory and starts helpers and threads. What grows after that is
  // a leak.
  await bot.ask('steady', { perSecond, seconds: Math.ceil(minutes * 60 * WARM_UP) })
  const before = await bot.ask('leftovers')
  console.error(`  ${subject}: ${perSecond} runs a second for ${minutes} minutes`)
  const pressure = spawnOwned('stress-ng', ['--cpu', String(availableParallelism())], { stdio: 'ignore' })
  const steady = await bot.ask('steady', { perSecond, seconds: minutes * 60 })
  const { reason } = await pressure.cancel()
  if (reason !== 'manual-cancel') throw new Error(`stress-ng ended too early: ${reason}`)
  const after = await bot.ask('leftovers')
  bot.child.disconnect()
  await once(bot.child, 'exit')
  return { minutes, live, steady, before, after, faults: faults({ live, steady, before, after }) }
}

function faults({ live, steady, before, after }) {
  const found = [...live.examples, ...steady.examples]
  for (const what of ['descriptors', 'threads', 'children'])
    if (after[what] > before[what]) found.push(`${what}: ${before[what]} before, ${after[what]} after`)
  if (after.zombies > 0) found.push(`${after.zombies} zombies`)
  if (after.entries > 0) found.push(`${after.entries} entries are left in the registry`)
  for (const what of ['heap', 'resident']) {
    const grown = after[`${what}Mb`] - before[`${what}Mb`]
    if (grown > GROWTH_MB[what]) found.push(`${what}: ${Math.round(grown)} MB more than before`)
  }
  return found
}

async function startBot(subject) {
  const registry = join(scratch, subject, 'process-registry.json')
  const child = started(here('./bot.mjs'), [subject], { SPAWN_OWNED_REGISTRY: registry })
  await once(child, 'message')
  const ask = async (order, args) => {
    child.send({ order, args })
    const [{ value, error }] = await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(([code, signal]) => [{ error: `the bot has ended (${signal ?? code})` }]),
    ])
    if (error) throw new Error(`${subject}: ${order}: ${error}`)
    return value
  }
  return { child, ask }
}

function started(program, args = [], env = {}) {
  const child = fork(program, args, { env: { ...process.env, ...env }, execArgv: ['--expose-gc'] })
  processes.add(child)
  child.once('exit', () => processes.delete(child))
  return child
}

function report(machine) {
  const columns = [OURS, NODE]
  const ms = (value) => `${value.toFixed(value < 10 ? 2 : 0)} ms`
  const spread = ({ p50, p90, p99, max }) => [p50, p90, p99, max].map((value) => value.toFixed(2)).join(' / ')
  const line = (what, read) => [what, ...columns.map((subject) => read(results[subject]))]
  const table = plainTable(
    ['', ...columns],
    [
      line(`${count} at once: all calls`, ({ live }) => ms(live.calledMs)),
      line('all started', ({ live }) => ms(live.startedMs)),
      line('all ended and reported', ({ live }) => ms(live.endedMs)),
      line('resident then', ({ live }) => `${(live.residentKb / 1024).toFixed(0)} MB`),
      line('CPU of the idle bot in 3 s', ({ live }) => ms(live.idleCpuMs)),
      line('event loop late by, p50/p90/p99/max ms', ({ live }) => spread(live.loop)),
      line(`${perSecond} a second, all CPUs busy: for`, ({ minutes }) => `${minutes} min`),
      line('runs', ({ steady }) => steady.runs.toLocaleString('en')),
      line('delay at the end', ({ steady }) => ms(Math.max(0, steady.lateMs))),
      line('most at once', ({ steady }) => String(steady.most)),
      line('spawn call, p50/p90/p99/max ms', ({ steady }) => spread(steady.calls)),
      line('spawn → exit, p50/p90/p99/max ms', ({ steady }) => spread(steady.exits)),
      line('event loop late by, p50/p90/p99/max ms', ({ steady }) => spread(steady.loop)),
      line('events that are wrong, doubled or missing', ({ live, steady }) =>
        String(live.wrong + steady.wrong),
      ),
      ...['descriptors', 'threads', 'children'].map((what) =>
        line(`${what} before → after`, ({ before, after }) => `${before[what]} → ${after[what]}`),
      ),
      line('zombies', ({ after }) => String(after.zombies)),
      ...['heap', 'resident'].map((what) =>
        line(`${what} before → after`, ({ before, after }) =>
          [before, after].map((then) => `${then[`${what}Mb`].toFixed(0)} MB`).join(' → '),
        ),
      ),
      line('entries left in the registry', ({ after }) => String(after.entries)),
    ],
  )
  console.log(`\n${table}`)
  const folder = here('../results')
  mkdirSync(folder, { recursive: true })
  writeFileSync(
    join(folder, 'load.json'),
    `${JSON.stringify({ machine: machine.facts, results }, null, 2)}\n`,
  )
  writeFileSync(join(folder, 'load.md'), `# Under load\n\n${machine.text}.\n\n${table}`)
  for (const fault of results[OURS].faults) {
    console.error(`  wrong: ${fault}`)
    process.exitCode = 1
  }
}
