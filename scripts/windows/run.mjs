// `npm run test:windows`: the tests in a real node.exe under Wine.
//   npm run test:windows -- cancel.test.mjs   some files only
//   npm run test:windows -- --node all        20, 22 or all instead of 22
//   npm run test:windows -- --rust            the crate's unit tests instead
//   npm run test:windows -- --steady          without those that take minutes in Wine: what CI runs
//   npm run test:windows -- --verbose         each file, each skipped test with its reason
import { basename } from 'node:path'
import { parseArgs } from 'node:util'
import { buildWindowsPrograms } from '../../__test__/support/windows-programs.mjs'
import { installPackages } from '../debian.mjs'
import { installPeers } from '../peers.mjs'
import { endOnSignals, runFiles } from '../processes.mjs'
import { testFiles } from '../test-files.mjs'
import { say } from '../tools.mjs'
import { buildAddons } from './build.mjs'
import { nodeExe, usual, versions } from './node.mjs'
import { Report } from './report.mjs'
import { alone, restless } from './restless.mjs'
import { runRustTests } from './rust-tests.mjs'
import { runFile } from './suite.mjs'
import { startWine, stopWine, watchServer } from './wine.mjs'

// rustc-web and rust-web-src have the same version: the standard library for Windows is built from
// source.
const packages = ['rustc-web', 'cargo-web', 'rust-web-src', 'gcc-mingw-w64-x86-64', 'wine64', 'wine']

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    node: { type: 'string', default: usual },
    rust: { type: 'boolean', default: false },
    steady: { type: 'boolean', default: false },
    verbose: { type: 'boolean', default: false },
  },
})
const chosen = chooseVersions(values.node)
const files = chooseFiles(positionals)

installPackages('The Windows tests', packages)
if (!values.rust) {
  installPeers()
  buildAddons()
  buildWindowsPrograms()
}
// Also if a step fails, which ends this process.
process.on('exit', stopWine)
startWine()
if (values.rust) runRustTests()
else {
  endOnSignals()
  const stopWatching = watchServer()
  for (const version of chosen) await test(version)
  stopWatching()
}

async function test(version) {
  const node = nodeExe(version)
  say(`Testing with node.exe ${version}`)
  const report = new Report(version, values.verbose)
  const run = (file) => runFile(node, file)
  for (const [atOnce, these] of inTurn(files))
    await runFiles(these, atOnce, run, (result) => report.add(result))
  if (!report.finish()) process.exitCode = 1
}

/** The files, and how many run in parallel. Files that must run alone come last. */
function inTurn(files) {
  return [
    [2, files.filter((file) => !alone.has(file))],
    [1, files.filter((file) => alone.has(file))],
  ]
}

function chooseVersions(wanted) {
  if (wanted === 'all') return versions
  if (versions.includes(wanted)) return [wanted]
  return refuse(`--node must be ${versions.join(', ')} or all. Wine cannot start other versions.`)
}

function chooseFiles(names) {
  if (names.length === 0) {
    const all = [...testFiles.keys()]
    return values.steady ? all.filter((file) => !restless.has(file)) : all
  }
  const wanted = names.map((name) => basename(name))
  const unknown = wanted.filter((name) => !testFiles.has(name))
  return unknown.length === 0 ? wanted : refuse(`no such test file in __test__: ${unknown.join(', ')}`)
}

function refuse(why) {
  console.error(why)
  process.exit(2)
}
