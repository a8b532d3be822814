/**
 * npm run bench [-- --quick] [-- --only stall,throughput] [-- --breakdown] [-- --variants]
 *   [-- --growth [--dimension 'foreign processes']] [-- --node 24]
 *
 * --quick      fewer samples, a minute or two
 * --only       a comma-separated list of benchmarks
 * --growth     only how costs grow with the bot, its runs, its registry, its trees and the host
 * --dimension  with --growth: measure only this one, and keep the earlier results of the others
 * --breakdown  only the steps of a spawn call; needs root
 * --node       measure in this major version of Node, from npm. execa 10 needs 22 or newer, and is
 *              left out in older versions
 * --variants   compare the ways of starting a keeper, instead of the targets
 *
 * A whole run measures the targets, the growth and the breakdown in about ten minutes. It
 * prints tables and writes latest.*, growth.* and breakdown.* to bench/results/, as JSON, Markdown
 * and SVG. A part (`--only`, `--variants`) has its own files, so latest.* is always a whole run.
 * BENCH_OURS=node:child_process measures Node against itself: the noise floor.
 */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { install, runtimes } from '../scripts/runtimes/runtimes.mjs'
import { run } from '../scripts/tools.mjs'
import * as burst from './benchmarks/burst.mjs'
import * as cancel from './benchmarks/cancel.mjs'
import * as importCost from './benchmarks/import.mjs'
import * as intent from './benchmarks/intent.mjs'
import * as keeperStart from './benchmarks/keeper-start.mjs'
import * as memory from './benchmarks/memory.mjs'
import * as pty from './benchmarks/pty.mjs'
import * as reap from './benchmarks/reap.mjs'
import * as register from './benchmarks/register.mjs'
import * as roundtrip from './benchmarks/roundtrip.mjs'
import * as stall from './benchmarks/stall.mjs'
import * as throughput from './benchmarks/throughput.mjs'
import { breakdown } from './breakdown/breakdown.mjs'
import { growth } from './growth/growth.mjs'
import { curves } from './report/curves.mjs'
import { thisMachine } from './report/machine.mjs'
import { steps } from './report/steps.mjs'
import { plot } from './report/svg.mjs'
import { growthTable, markdown, stepsTable, terminalTable } from './report/table.mjs'

const ALL = [stall, roundtrip, burst, throughput, pty, cancel, memory, register, reap, intent, importCost]
const results = fileURLToPath(new URL('./results', import.meta.url))

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    growth: { type: 'boolean', default: false },
    dimension: { type: 'string' },
    breakdown: { type: 'boolean', default: false },
    variants: { type: 'boolean', default: false },
    node: { type: 'string' },
  },
})
if (options.node !== undefined) inNode(options.node)
const isWhole = !(options.only || options.growth || options.breakdown || options.variants)
const chosen = choose(options)
// The measured bots must not use the registry of the user who runs this.
const scratch = mkdtempSync(join(tmpdir(), 'spawn-owned-bench-'))
process.env.SPAWN_OWNED_REGISTRY = join(scratch, 'process-registry.json')
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1))

const { facts: machine, text: subtitle, busy } = await thisMachine()
if (busy > 0.05) {
  console.error(
    `  ${machine.busyBefore} of the CPUs are busy with other processes: these figures are provisional`,
  )
}
if (chosen.length > 0) await reportTargets()
if (isWhole || options.growth) await reportGrowth()
if (isWhole || options.breakdown) await reportBreakdown()

async function reportTargets() {
  const rows = []
  for (const { name, bench } of chosen) rows.push(...((await measured(name, bench)) ?? []))
  console.log(`\n${terminalTable(rows)}\n`)
  const part = options.variants
    ? 'keeper-start'
    : options.only
      ? `only-${chosen.map(({ name }) => name).join('-')}`
      : 'latest'
  put(part, 'json', json({ rows }))
  put(part, 'md', markdown({ rows, machine, quick: options.quick, image: isWhole && 'latest.svg' }))
  if (isWhole) put(part, 'svg', plot(rows, { title: 'spawn-owned: cost against its targets', subtitle }))
}

async function reportGrowth() {
  const only = options.dimension
  const fresh = await measured('growth', (how) => growth({ ...how, only }))
  if (!fresh) return
  const panels = only === undefined ? fresh : [...measuredBefore(fresh), ...fresh]
  const table = growthTable(panels)
  console.log(`\n${table}\n`)
  put('growth', 'json', json({ panels }))
  put(
    'growth',
    'md',
    `# How costs grow\n\n${subtitle}. Medians.\n\n![The same as a plot](growth.svg)\n\n${table}`,
  )
  put('growth', 'svg', curves(panels, { title: 'spawn-owned: what is flat, and what is not', subtitle }))
}

/** The panels of the other dimensions, from the last measurement. */
function measuredBefore(fresh) {
  const { panels } = JSON.parse(readFileSync(join(results, 'growth.json'), 'utf8'))
  return panels.filter(({ x }) => !fresh.some((panel) => panel.x === x))
}

async function reportBreakdown() {
  const { bars } = (await measured('breakdown', breakdown)) ?? { bars: [] }
  if (bars.length === 0) return
  const table = stepsTable(bars)
  console.log(`\n${table}\n`)
  put('breakdown', 'json', json({ bars }))
  put(
    'breakdown',
    'md',
    `# Where a spawn call spends its time\n\n${subtitle}. Microseconds while the kernel traces it; averages of the calmer half.\n\n![The same as a plot](breakdown.svg)\n\n${table}`,
  )
  put('breakdown', 'svg', steps(bars, { title: 'Where a spawn call spends its time (50 MB bot)', subtitle }))
}

/** Runs this program in that version of Node, and does not return. */
function inNode(major) {
  const runtime = runtimes.find(({ name }) => name === `node${major}`)
  if (runtime === undefined) {
    console.error(`unknown version of Node: ${major}. See scripts/runtimes/runtimes.mjs`)
    process.exit(2)
  }
  const { node: _, ...others } = options
  const args = Object.entries(others).flatMap(([name, value]) => argument(name, value))
  run(install(runtime).program, [fileURLToPath(import.meta.url), ...args])
  process.exit()
}

function argument(name, value) {
  if (typeof value === 'string') return [`--${name}`, value]
  return value ? [`--${name}`] : []
}

function choose({ only, variants }) {
  if (variants) return [keeperStart]
  if (isWhole) return ALL
  if (only === undefined) return []
  const names = only.split(',').map((name) => name.trim())
  const unknown = names.filter((name) => !ALL.some((module) => module.name === name))
  if (unknown.length > 0) {
    console.error(
      `unknown benchmark: ${unknown.join(', ')}. There are: ${ALL.map(({ name }) => name).join(', ')}`,
    )
    process.exit(2)
  }
  return ALL.filter((module) => names.includes(module.name))
}

/** The result, or undefined after a failure: the other benchmarks continue. */
async function measured(name, measure) {
  const began = performance.now()
  const progress = (what) => console.error(`  ${name}: ${what}`)
  progress('…')
  try {
    return await measure({ quick: options.quick, progress })
  } catch (error) {
    console.error(`  ${name}: failed: ${error.stack}`)
    process.exitCode = 1
    return undefined
  } finally {
    progress(`${((performance.now() - began) / 1000).toFixed(1)} s`)
  }
}

function json(facts) {
  return `${JSON.stringify({ machine, quick: options.quick, ...facts }, null, 2)}\n`
}

function put(part, extension, content) {
  mkdirSync(results, { recursive: true })
  writeFileSync(join(results, `${part}.${extension}`), content)
}
