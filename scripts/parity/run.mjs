// Runs Node's own test/parallel/test-child-process-* twice, as it is and with `spawn` replaced by
// spawnOwned, and reports every file that behaves differently. See docs/parity.md.

import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { classify, describeOutcome, renderText, summarise } from './report.mjs'
import { askNode, listTests, PRELOAD, runTest } from './suite.mjs'
import { thisSystem, wine } from './systems.mjs'

const USAGE = `Usage: npm run parity -- --node-source DIR [options]

  --node-source DIR   a Node source tree; needs test/common, test/fixtures, test/parallel
  --node PATH         the node binary to run the tests with (default: the one running this script)
  --wine              run them in a node.exe, under Wine
  --filter RE         only files whose name matches
  --all               also replace fork, exec and execFile by those of spawn-owned/child_process
  --repeat N          run each patched test N times; all must pass (default 1)
  --jobs N            tests at a time (default 2)
  --timeout SECONDS   per test (default 60)
  --threshold PERCENT exit with 1 below this (default 95, with --wine or --all 90)
  --keep-going        do not stop after 10 unexplained differences
  --control           replace spawn by node's own spawn: shows what the harness itself changes
  --json              the whole result as JSON on stdout`

const MAX_UNEXPLAINED = 10

const { values: options } = parseArgs({
  options: {
    'node-source': { type: 'string' },
    node: { type: 'string' },
    wine: { type: 'boolean', default: false },
    filter: { type: 'string', default: '' },
    all: { type: 'boolean', default: false },
    repeat: { type: 'string', default: '1' },
    jobs: { type: 'string', default: '2' },
    timeout: { type: 'string', default: '60' },
    threshold: { type: 'string' },
    'keep-going': { type: 'boolean', default: false },
    control: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

function fail(message) {
  console.error(message)
  process.exit(2)
}

if (options.help) {
  console.log(USAGE)
  process.exit(0)
}
if (!options['node-source']) fail(USAGE)

const nodeSource = path.resolve(options['node-source'])
const mode = options.control ? 'control' : 'owned'
const threshold = Number(options.threshold ?? (options.all || options.wine ? 90 : 95))
for (const needed of ['test/common/index.js', 'test/fixtures', 'test/parallel']) {
  if (!existsSync(path.join(nodeSource, needed)))
    fail(`${nodeSource} is not a Node source tree: ${needed} is missing`)
}
const system = options.wine ? wine : thisSystem
system.start()
const settings = {
  system,
  node: options.node ?? system.node(),
  all: options.all,
  timeoutMs: Number(options.timeout) * 1000,
}
await checkLibraryLoads()

const reasonsBySection = JSON.parse(readFileSync(new URL('differences.json', import.meta.url), 'utf8'))
const sections = options.wine ? ['wine'] : ['spawn', ...(options.all ? ['all'] : [])]
const reasons = options.control ? {} : Object.assign({}, ...sections.map((name) => reasonsBySection[name]))
const tests = listTests(nodeSource, new RegExp(options.filter))
const results = []
let unexplained = 0
const queue = tests.entries()
await Promise.all(Array.from({ length: Number(options.jobs) }, (_, slot) => work(slot)))
results.sort((a, b) => (a.file < b.file ? -1 : 1))

const summary = { node: await nodeVersion(), mode, all: options.all, ...summarise(results, reasons) }
const stopped = results.length < tests.length
if (options.json) {
  console.log(JSON.stringify({ ...summary, stopped }, null, 2))
} else {
  console.log(renderText(summary))
  if (stopped)
    console.log(
      `Stopped early: ${unexplained} unexplained differences. --keep-going runs all ${tests.length} files.`,
    )
}
process.exitCode = summary.percent < threshold || stopped ? 1 : 0

/** One of `--jobs` workers. The same worker does both runs of a file, in sequence. */
async function work(slot) {
  for (const [index, test] of queue) {
    const file = path.basename(test)
    const plain = await runTest(test, { ...settings, slot, mode: 'plain' })
    let owned
    if (plain.passed && !plain.skipped) {
      owned = []
      for (let i = 0; i < Number(options.repeat); i++)
        owned.push(await runTest(test, { ...settings, slot, mode }))
    }
    const kind = classify({ plain, owned })
    results.push({ file, kind, plain, owned })
    const failed = owned?.find((run) => !run.passed)
    console.error(
      `[${index + 1}/${tests.length}] ${file}: ${kind}${failed ? ` (${describeOutcome(failed)})` : ''}`,
    )
    if (failed && !(file in reasons)) unexplained += 1
    if (unexplained >= MAX_UNEXPLAINED && !options['keep-going']) return
  }
}

async function checkLibraryLoads() {
  if (mode === 'control') return
  const { passed, output } = await askNode(['--require', system.path(PRELOAD), '--eval', '0'], settings)
  if (!passed) fail(`spawn-owned does not load in ${settings.node}; run ${system.build} first.\n${output}`)
}

async function nodeVersion() {
  return (await askNode(['--version'], settings)).output.trim()
}
