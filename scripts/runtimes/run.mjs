// `npm run test:runtimes`: the tests in Node 20, 22, 24 and 26, Bun and Deno, each fetched from npm.
//   npm run test:runtimes -- bun node26           some runtimes only
//   npm run test:runtimes -- cancel.test.mjs      some files only
//   npm run test:runtimes -- --ci                 what CI runs (see plan.mjs)
//   npm run test:runtimes -- --document           writes all results to docs/runtimes.md
//   npm run test:runtimes -- --verbose            prints each file, and why tests were skipped
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { parseArgs } from 'node:util'
import { installPeers } from '../peers.mjs'
import { endOnSignals, runFiles } from '../processes.mjs'
import { testFiles } from '../test-files.mjs'
import { say } from '../tools.mjs'
import { save, writeDocument } from './document.mjs'
import { allFiles, leftOut, sample } from './plan.mjs'
import { Report } from './report.mjs'
import { install, isHere, runtimes } from './runtimes.mjs'
import { runFile } from './suite.mjs'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    ci: { type: 'boolean', default: false },
    document: { type: 'boolean', default: false },
    verbose: { type: 'boolean', default: false },
  },
})
const files = chosenFiles()
const chosen = chosenRuntimes()
if (!isHere) refuse('the runtimes are available only for Linux on x64 and arm64')

// The registry of tests that do not choose their own.
const folder = mkdtempSync(join(tmpdir(), 'spawn-owned-test-'))
process.env.SPAWN_OWNED_REGISTRY = join(folder, 'process-registry.json')
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

installPeers()
const installed = chosen.map((runtime) => ({ runtime, ...install(runtime) }))
endOnSignals()
for (const { runtime, program, version } of installed) {
  const report = new Report(runtime, version, values.verbose)
  const began = performance.now()
  say(`Testing with ${runtime.title} ${version}`)
  const run = (file) => runFile(runtime, program, file)
  await runFiles(filesFor(runtime), 2, run, (result) => report.add(result))
  if (!report.finish()) process.exitCode = 1
  const seconds = (performance.now() - began) / 1000
  if (values.verbose) console.log(`${runtime.title}: ${seconds.toFixed(0)} s`)
  save(runtime, version, report.results)
}
if (values.document) writeDocument()

function filesFor({ name }) {
  const wanted = values.ci ? sample() : files
  return wanted.filter((file) => !leftOut(name).has(file)).map((file) => testFiles.get(file))
}

function chosenRuntimes() {
  const names = positionals.filter((name) => !name.endsWith('.mjs'))
  const unknown = names.filter((name) => !runtimes.some((runtime) => runtime.name === name))
  if (unknown.length > 0)
    refuse(
      `unknown runtime ${unknown.join(', ')}. The runtimes are: ${runtimes.map(({ name }) => name).join(', ')}`,
    )
  if (names.length > 0) return runtimes.filter(({ name }) => names.includes(name))
  // CI has run everything in this Node already.
  const here = `node${process.versions.node.split('.')[0]}`
  return values.ci ? runtimes.filter(({ name }) => name !== here) : runtimes
}

function chosenFiles() {
  const names = positionals.filter((name) => name.endsWith('.mjs')).map((name) => basename(name))
  const unknown = names.filter((name) => !allFiles.includes(name))
  if (unknown.length > 0) refuse(`no such test file in __test__: ${unknown.join(', ')}`)
  return names.length === 0 ? allFiles : names
}

function refuse(why) {
  console.error(why)
  process.exit(2)
}
