/**
 * npm run bench [-- --quick] [-- --only stall,throughput] [-- --variants]
 *
 * --quick     fewer samples, under a minute
 * --only      a comma-separated list of benchmarks
 * --variants  the ways of starting a keeper instead of the targets
 *
 * Prints a table and writes it to bench/results/ as JSON, Markdown and SVG. Of a part (`--only`, `--variants`) the
 * files are named after it, so that latest.* is always a whole run.
 * BENCH_OURS=node:child_process measures Node against itself: the noise floor.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, release, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import * as burst from './burst.mjs'
import * as cancel from './cancel.mjs'
import * as importCost from './import.mjs'
import * as intent from './intent.mjs'
import * as keeperStart from './keeper-start.mjs'
import { busyShare } from './lib/proc.mjs'
import { plot } from './lib/svg.mjs'
import { markdown, terminalTable } from './lib/table.mjs'
import * as memory from './memory.mjs'
import * as pty from './pty.mjs'
import * as reap from './reap.mjs'
import * as register from './register.mjs'
import * as roundtrip from './roundtrip.mjs'
import * as stall from './stall.mjs'
import * as throughput from './throughput.mjs'

const ALL = [stall, roundtrip, burst, throughput, pty, cancel, memory, register, reap, intent, importCost]
const results = fileURLToPath(new URL('./results', import.meta.url))

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    variants: { type: 'boolean', default: false },
  },
})
const chosen = choose(options)
// The registry of the measured bots is not the one of whoever runs this.
const scratch = mkdtempSync(join(tmpdir(), 'spawn-owned-bench-'))
process.env.SPAWN_OWNED_REGISTRY = join(scratch, 'process-registry.json')
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1))

const busy = await busyShare(500)
if (busy > 0.05) {
  console.error(`  ${percent(busy)} of the CPUs are busy with something else: these figures are provisional`)
}
const rows = await measure(chosen, options.quick)
const machine = {
  cpu: cpus()[0].model.trim(),
  cores: cpus().length,
  // Without what a distribution or a hoster appends.
  kernel: /^[\d.]+/.exec(release())[0],
  node: process.version,
  date: new Date().toISOString().slice(0, 10),
  busyBefore: percent(busy),
}
console.log(`\n${terminalTable(rows)}\n`)
write(rows)

function choose({ only, variants }) {
  if (variants) return [keeperStart]
  if (only === undefined) return ALL
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

async function measure(modules, quick) {
  const rows = []
  for (const { name, bench } of modules) {
    const began = performance.now()
    const progress = (what) => console.error(`  ${name}: ${what}`)
    progress('…')
    try {
      rows.push(...(await bench({ quick, progress })))
    } catch (error) {
      // The others are still worth having.
      console.error(`  ${name}: failed: ${error.stack}`)
      process.exitCode = 1
    }
    progress(`${((performance.now() - began) / 1000).toFixed(1)} s`)
  }
  return rows
}

function percent(share) {
  return `${Math.round(share * 100)} %`
}

function write(rows) {
  mkdirSync(results, { recursive: true })
  const part = options.variants
    ? 'keeper-start'
    : options.only
      ? `only-${chosen.map(({ name }) => name).join('-')}`
      : 'latest'
  const facts = { machine, quick: options.quick, rows }
  const put = (extension, content) => writeFileSync(join(results, `${part}.${extension}`), content)
  put('json', `${JSON.stringify(facts, null, 2)}\n`)
  put('md', markdown({ ...facts, image: part === 'latest' && 'latest.svg' }))
  if (part !== 'latest') return
  const subtitle = `${machine.cpu}, ${machine.cores} cores, Linux ${machine.kernel}, Node ${machine.node}, ${machine.date}`
  put('svg', plot(rows, { title: 'spawn-owned: cost against its targets', subtitle }))
}
