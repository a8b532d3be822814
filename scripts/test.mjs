// `npm test`: the core with cargo-nextest, then the public API with node's test runner.
// `npm test -- cancel streams` runs only these files of __test__; `--test-name-pattern=PATTERN` only
// tests with such names. `--quick` runs a choice of files that takes less than a minute. `--durations` also
// lists how long each file took.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { run as runTests } from 'node:test'
import { parseArgs } from 'node:util'
import { offerPackages } from './debian.mjs'
import { installPeers } from './peers.mjs'
import { quickFiles, testFiles } from './test-files.mjs'
import { report } from './test-report.mjs'
import { isWindows, root, run } from './tools.mjs'

/** The longest files (see `--durations`) start first, so that none runs alone at the end. */
const LONGEST = [
  ...[
    'panic',
    'browsers',
    'fleet',
    'hostile-trees',
    'deadlines',
    'security-commands',
    'registry-crash',
    'service',
    'service-replaced',
  ],
  ...[
    'adapter-types',
    'snippets',
    'hook',
    'cancel-from-other-process',
    'fuzz-cli',
    'cli-usage',
    'child_process',
    'mcp',
    'leases',
    'cli',
    'adopt',
  ],
]

const { values: options, positionals } = parseArgs({
  options: {
    'test-name-pattern': { type: 'string', multiple: true },
    durations: { type: 'boolean' },
    quick: { type: 'boolean' },
  },
  allowPositionals: true,
})
const names = [...testFiles.keys()].map((file) => file.replace('.test.mjs', ''))
const unknown = positionals.filter((name) => !names.includes(name))
if (unknown.length > 0) {
  console.error(`there is no test file named ${unknown.join(', ')} in __test__`)
  process.exit(2)
}
const all = options.quick ? quickFiles : names
const wanted = positionals.length > 0 ? positionals : all
const ordered = [
  ...LONGEST.filter((name) => wanted.includes(name)),
  ...wanted.filter((name) => !LONGEST.includes(name)),
]

// The registry of tests that do not choose their own.
const folder = mkdtempSync(join(tmpdir(), 'spawn-owned-test-'))
process.env.SPAWN_OWNED_REGISTRY = join(folder, 'process-registry.json')
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

// Without it each test file would fail, with the same error.
run(process.execPath, ['-e', "require('spawn-owned')"])
if (!options.quick) {
  installPeers()
  // Real browsers (122 MB, half a minute, once), and the servers of examples/fleet. Tests that need
  // a missing one are skipped, with a reason.
  offerPackages(['chromium', 'redis-server'])
}

// Built once before the tests, which run in parallel.
if (isWindows) {
  const { buildWindowsPrograms } = await import('../__test__/support/windows-programs.mjs')
  buildWindowsPrograms()
}

if (positionals.length === 0)
  run('cargo', ['nextest', 'run', '--cargo-quiet', '--status-level', 'fail', '--final-status-level', 'fail'])

const events = runTests({
  files: ordered.map((name) => join(root, testFiles.get(`${name}.test.mjs`))),
  concurrency: 2,
  testNamePatterns: options['test-name-pattern'],
})
events.on('test:fail', ({ todo }) => {
  if (todo === undefined) process.exitCode = 1
})
Readable.from(report(events, { withDurations: options.durations, withReasons: true })).pipe(process.stdout)
