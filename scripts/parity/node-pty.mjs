// node-pty's own tests against spawn-owned/node-pty: `npm run parity:node-pty -- --source
// ../node-pty`.
//
// The tests are transpiled to a temporary folder beside two replacements for the modules they test.
// node:test runs them under mocha's names. `--control` runs them against node-pty itself: a test
// that fails there says nothing about spawn-owned.
import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { buildSync } from 'esbuild'
import { root } from '../tools.mjs'

const TESTS = ['unixTerminal.test', 'terminal.test', 'eventEmitter2.test']
const NEEDED = [...TESTS, 'testUtils.test', 'terminal', 'eventEmitter2']

/** Tests that fail as expected, with the reason. */
const DIFFERENT = {
  'should set a valid pts name': 'the file descriptor of the terminal is not exposed: the relay reads it',
  'should open a pty with access to a master and slave socket':
    'open() starts no command, so there is no tree to own',
  'should respect ctor flow control options': 'reads private fields; other tests cover the options',
}

const { values: options } = parseArgs({
  options: { source: { type: 'string' }, control: { type: 'boolean', default: false } },
})
if (!options.source || !existsSync(join(options.source, 'src', 'unixTerminal.test.ts'))) {
  console.error(
    'usage: npm run parity:node-pty -- --source <a checkout of https://github.com/microsoft/node-pty> [--control]',
  )
  process.exit(2)
}

const scratch = mkdtempSync(join(tmpdir(), 'node-pty-parity-'))
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }))
prepare(resolve(options.source))
// The tests wait for fixed times, which are too short on a busy machine. So a test that passes once
// counts as passed.
let failed = run()
for (let again = 0; again < 2 && failed.some((name) => !(name in DIFFERENT)); again++) {
  const now = run()
  failed = failed.filter((name) => now.includes(name))
}
const unexplained = failed.filter((name) => options.control || !(name in DIFFERENT))
for (const name of failed) console.log(`✖ ${name}${DIFFERENT[name] ? `: ${DIFFERENT[name]}` : ''}`)
console.log(`${failed.length} differ, ${unexplained.length} of them without a reason`)
process.exitCode = unexplained.length > 0 ? 1 : 0

function prepare(source) {
  const lib = join(scratch, 'lib')
  mkdirSync(lib)
  cpSync(join(source, 'fixtures'), join(scratch, 'fixtures'), { recursive: true })
  for (const name of NEEDED) {
    const [entry, outfile] = [join(source, 'src', `${name}.ts`), join(lib, `${name}.js`)]
    buildSync({ entryPoints: [entry], outfile, format: 'cjs', platform: 'node', logLevel: 'error' })
  }
  const require = createRequire(import.meta.url)
  const subject = options.control ? require.resolve('@lydell/node-pty') : join(root, 'dist', 'node-pty.js')
  const put = (name, text) => writeFileSync(join(lib, `${name}.js`), text)
  put('index', `module.exports = require(${JSON.stringify(subject)})\n`)
  put(
    'unixTerminal',
    `const pty = require('./index')
exports.UnixTerminal = function (...args) { return pty.spawn(...args) }
exports.UnixTerminal.open = pty.open
`,
  )
  // Mocha's names and callbacks.
  put(
    'mocha',
    `const { afterEach, describe, it } = require('node:test')
const adapted = (run) => run.length > 0 ? (_, done) => run.call({ timeout() {} }, done) : () => run.call({ timeout() {} })
Object.assign(globalThis, { describe, afterEach, it: (name, run) => it(name, { timeout: 10_000 }, adapted(run)) })
`,
  )
}

/** The names of the failed tests. */
function run() {
  const files = TESTS.map((name) => join('lib', `${name}.js`))
  const args = [
    '--require',
    './lib/mocha.js',
    '--test',
    '--test-force-exit',
    '--test-reporter=tap',
    '--test-concurrency=1',
  ]
  const { stdout } = spawnSync(process.execPath, [...args, ...files], {
    cwd: scratch,
    env: { ...process.env, SPAWN_OWNED_REGISTRY: join(scratch, 'process-registry.json') },
    encoding: 'utf8',
    timeout: 180_000,
  })
  const results = [...stdout.matchAll(/^ *(not )?ok \d+ - (.+)$/gm)]
  const leaves = results.filter(([, , name]) => name.startsWith('should') || name.startsWith('SIG'))
  if (leaves.length === 0) throw new Error(`no test has run:\n${stdout}`)
  console.log(`ran ${leaves.length} tests`)
  return leaves.filter(([, not]) => not).map(([, , name]) => name.replaceAll('\\', ''))
}
