// The types of spawn-owned/child_process, checked against those of node:child_process.
import { readFileSync } from 'node:fs'
import { test } from '../support/prelude.mjs'
import { NO_LINKS, posixOnly } from '../support/system.mjs'
import { assertCompiles } from '../support/types.mjs'

const options = posixOnly(NO_LINKS, { timeout: 120_000 })
const code = readFileSync(new URL('../fixtures/types/drop-in.mts', import.meta.url), 'utf8')
const ours = code.replaceAll("'node:child_process'", "'spawn-owned/child_process'")

test('code for node:child_process compiles with Node’s types', options, (t) => {
  assertCompiles(t, { 'esm.mts': code, 'cjs.cts': code })
})

test('the same code compiles with spawn-owned/child_process, as ESM and CommonJS', options, (t) => {
  assertCompiles(t, { 'esm.mts': ours, 'cjs.cts': ours })
})

const assignments = `
export const functions: Pick<typeof node, 'spawn' | 'exec' | 'execFile' | 'fork'> = dropIn
export const whole: typeof node = dropIn
export const spawns: (typeof node.spawn)[] = [spawnOwned, dropIn.spawn, createSupervisor().spawnOwned]
export const runs: OwnedProcess[] = [
  dropIn.spawn('x'),
  dropIn.spawn('x', [], { stdio: 'ignore', sessionId: 's' }),
  dropIn.fork('x', { labels: { a: 'b' } }),
  dropIn.exec('x', { timeoutMs: 5 }),
  dropIn.execFile('x', [], { runId: 'r' }, () => {}),
  promisify(dropIn.exec)('x').child,
  promisify(dropIn.execFile)('x', [], { graceMs: 5 }).child,
]
export const streams: OwnedProcessByStdio<null, Readable, Readable>[] = [
  spawnOwned('x', { stdio: ['ignore', 'pipe', 'pipe'], timeoutMs: 5 }),
  spawnOwned('x', null, { stdio: ['ignore', 'pipe', 'pipe'], runId: 'r' }),
  dropIn.spawn('x', ['y'], { stdio: ['ignore', 'pipe', 'pipe'], sessionId: 's' }),
]
spawnOwned('x', [], { stdio: ['ignore', 'pipe', 'inherit'] }).stdout.pipe(process.stdout)
// @ts-expect-error it is always null
spawnOwned('x', [], { stdio: ['ignore', 'pipe', 'inherit'] }).stderr.pipe(process.stdout)
export const owned: ReturnType<typeof spawnOwned>['runId'] = 'r'
declare const maybeTerminal: boolean
export const unknown: OwnedProcess = spawnOwned("x", { pty: maybeTerminal })
// @ts-expect-error a terminal has no stderr
spawnOwned("x", { pty: maybeTerminal }).stderr.resume()
export const given: Parameters<typeof spawnOwned> = ['x', ['y'], { sessionId: 's' }]
// @ts-expect-error a terminal is for spawn
dropIn.execFile('x', [], { pty: true })
`

test('spawnOwned and the drop-in have Node’s types, and return owned processes', options, (t) => {
  const common = `import type * as node from 'node:child_process'
import type { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { createSupervisor, type OwnedProcess, type OwnedProcessByStdio, spawnOwned } from 'spawn-owned'`
  const forms = {
    'namespace.mts': "import * as dropIn from 'spawn-owned/child_process'",
    'default.mts': "import dropIn from 'spawn-owned/child_process'",
    'require.cts': "import dropIn = require('spawn-owned/child_process')",
    'interop.cts': "import dropIn from 'spawn-owned/child_process'",
  }
  const sources = Object.entries(forms).map(([name, form]) => [name, `${common}\n${form}\n${assignments}`])
  assertCompiles(t, Object.fromEntries(sources))
})

test('every entry point has a default export, with types', options, (t) => {
  const names = { '': 'spawnOwned', '/child_process': 'spawn', '/node-pty': 'spawn' }
  const lines = Object.entries(names).map(
    ([entry, name], index) => `import entry${index} from 'spawn-owned${entry}'
entry${index}.${name}('x')`,
  )
  assertCompiles(t, { 'esm.mts': lines.join('\n') })
})
