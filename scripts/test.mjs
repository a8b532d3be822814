// `npm test`: the core with cargo-nextest, then everything a user sees with node's test runner.
// Arguments are passed on to the latter: `npm test -- --test-name-pattern=cancel`.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { offerPackages } from './debian.mjs'
import { installPeers } from './peers.mjs'
import { isWindows, root, run } from './tools.mjs'

const files = readdirSync(join(root, '__test__'))
  .filter((file) => file.endsWith('.test.mjs'))
  .map((file) => join('__test__', file))

// Tests that do not care where their runs are recorded.
const folder = mkdtempSync(join(tmpdir(), 'spawn-owned-test-'))
process.env.SPAWN_OWNED_REGISTRY = join(folder, 'process-registry.json')
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

installPeers()
// Real browsers to own (122 MB, half a minute, once), and what examples/fleet talks to. Tests that miss them say so.
offerPackages(['chromium', 'redis-server'])
const { withoutBrowser } = await import('../__test__/support/browser.mjs')
if (withoutBrowser) console.error(`real browsers are left out: ${withoutBrowser}`)

// What the tests need there, built once: they run beside each other.
if (isWindows) {
  const { buildWindowsPrograms } = await import('../__test__/support/windows-programs.mjs')
  buildWindowsPrograms()
}

run('cargo', ['nextest', 'run', '--cargo-quiet', '--status-level', 'fail', '--final-status-level', 'fail'])
run(process.execPath, [
  '--test',
  '--test-reporter=dot',
  '--test-concurrency=2',
  ...process.argv.slice(2),
  ...files,
])
