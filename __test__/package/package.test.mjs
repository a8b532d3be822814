// The installed package: one implementation for ESM and CommonJS, with types for both.
import child_process from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import imported, * as names from 'spawn-owned'
import acp, * as acpNames from 'spawn-owned/acp'
import dropIn, * as dropInNames from 'spawn-owned/child_process'
import agents, * as agentNames from 'spawn-owned/claude-agent-sdk'
import mcp, * as mcpNames from 'spawn-owned/mcp'
import pty, * as ptyNames from 'spawn-owned/node-pty'
import { builtFolder, pack, publishedManifest, stageMain, stagePackage } from '../../scripts/packages.mjs'
import { packageName, targets, thisTarget } from '../../scripts/targets/list.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { NO_LINKS, NO_USERS, nodeOnly, posixOnly } from '../support/system.mjs'
import { assertCompiles } from '../support/types.mjs'

const require = createRequire(import.meta.url)
const NO_NPM = 'what npm packs does not depend on the system, and under Wine there is no npm'
const STACKS = 'other runtimes print stack traces in another format'
const root = fileURLToPath(new URL('../..', import.meta.url))
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

function temporary(t, prefix) {
  const folder = mkdtempSync(join(tmpdir(), prefix))
  t.after(() => rmSync(folder, { recursive: true, maxRetries: 10 }))
  return folder
}

describe('import and require', () => {
  test('give the same functions', () => {
    const required = require('spawn-owned')
    assert.deepEqual(Object.keys(required).toSorted(), [
      'adopt',
      'cancel',
      'capabilities',
      'captureStartToken',
      'close',
      'createSupervisor',
      'endOrphans',
      'ensureService',
      'findOrphans',
      'history',
      'installSignalHandlers',
      'isSameProcess',
      'list',
      'metrics',
      'metricsText',
      'reapOrphans',
      'registerProcess',
      'run',
      'shutdown',
      'spawnOwned',
      'stopService',
      'survey',
      'suspectPatterns',
      'unregisterProcess',
      'watchOrphans',
    ])
    for (const name of Object.keys(required)) {
      assert.equal(names[name], required[name])
      assert.equal(imported[name], required[name])
    }
  })

  test('share one table of runs', async (t) => {
    const child = names.spawnOwned('cat', { sessionId: 'one-table' })
    t.after(() => child.cancel({ graceMs: 0 }))
    assert.throws(
      () => require('spawn-owned').spawnOwned('true', { runId: child.runId }),
      /names a run that is alive/,
    )
    const { outcome } = await require('spawn-owned').cancel({ sessionId: 'one-table' })
    assert.equal(outcome, 'cancelled')
  })

  test('replace the asynchronous functions of child_process, and only these', () => {
    const required = require('spawn-owned/child_process')
    const expected = Object.keys(child_process).toSorted()
    assert.deepEqual(Object.keys(required).toSorted(), expected)
    // Node listed the names at build time. Another runtime may lack some.
    assert.deepEqual(
      Object.keys(dropInNames)
        .filter((name) => name !== 'default' && dropInNames[name] !== undefined)
        .toSorted(),
      expected,
    )
    const ours = ['exec', 'execFile', 'fork', 'spawn']
    for (const name of expected) {
      const same = ours.includes(name) ? required[name] : child_process[name]
      assert.deepEqual([required[name], dropIn[name], dropInNames[name]], [same, same, same], name)
    }
    for (const name of ours) assert.notEqual(dropIn[name], child_process[name])
    for (const name of ours) assert.equal(dropIn[name].name, name)
  })
})

for (const [entry, imported, names, expected] of [
  ['node-pty', pty, ptyNames, ['createTerminal', 'fork', 'spawn']],
  ['claude-agent-sdk', agents, agentNames, ['createSpawner', 'spawnClaudeCodeProcess']],
  ['mcp', mcp, mcpNames, ['StdioClientTransport']],
  ['acp', acp, acpNames, ['startAgent']],
]) {
  test(`${entry} exports the same names as ESM and CommonJS`, () => {
    const required = require(`spawn-owned/${entry}`)
    assert.deepEqual(Object.keys(required).toSorted(), expected)
    for (const name of expected) {
      assert.equal(names[name], required[name])
      assert.equal(imported[name], required[name])
    }
  })
}

test('public classes keep their names in the build', async () => {
  const child = names.spawnOwned('cat', { sessionId: 'named' })
  const shown = [
    child,
    child.stdin,
    child.stdout,
    names.createSupervisor(),
    mcp.StdioClientTransport.prototype,
  ]
  const called = shown.map((thing) => thing.constructor.name)
  await child.cancel()
  assert.deepEqual(called, ['OwnedProcess', 'Socket', 'Socket', 'Supervisor', 'StdioClientTransport'])
})

describe('the built files are readable:', () => {
  /** Long enough for the longest message, too short for several statements of minified code. */
  const LONGEST_LINE = 500

  test('no line is long', () => {
    for (const name of readdirSync(join(root, 'dist'))) {
      const lines = readFileSync(join(root, 'dist', name), 'utf8').split('\n')
      const long = lines.filter((line) => line.length > LONGEST_LINE)
      assert.deepEqual(long, [], name)
    }
  })

  test(
    'an uncaught error prints one short line of code and the names of our functions',
    nodeOnly(STACKS),
    () => {
      const program = "require('spawn-owned').spawnOwned('x', { timeoutMs: 'never' })"
      const { stderr } = child_process.spawnSync(process.execPath, ['-e', program], {
        cwd: root,
        encoding: 'utf8',
      })
      assert.match(stderr, /at Supervisor\.spawnOwned \(.+dist.index\.js:\d+:\d+\)/)
      for (const name of ['readArguments', 'spawn']) assert.match(stderr, new RegExp(`at ${name} \\(`))
      assert.ok(stderr.length < 4096, stderr)
    },
  )
})

test('every file that package.json names exists', () => {
  const paths = (value) => (typeof value === 'string' ? [value] : Object.values(value).flatMap(paths))
  for (const path of [manifest.main, manifest.types, ...paths(manifest.exports)]) {
    assert.ok(existsSync(join(root, path)), path)
    const [, top] = path.split('/')
    assert.ok(top === 'package.json' || manifest.files.includes(top), `${path} is not published`)
  }
  assert.deepEqual(Object.keys(manifest.dependencies ?? {}), [])
  // The SDKs of the adapters are optional peers: npm does not install them.
  for (const name of Object.keys(manifest.peerDependencies))
    assert.deepEqual(manifest.peerDependenciesMeta[name], { optional: true })
  for (const hook of ['preinstall', 'install', 'postinstall']) assert.equal(manifest.scripts[hook], undefined)
})

describe('platform packages', () => {
  const platforms = targets.map(({ platform }) => platform)
  const own = (platform) => JSON.parse(readFileSync(join(root, 'npm', platform, 'package.json'), 'utf8'))

  test('exist for each platform, and the main package depends on exactly these versions', () => {
    const folders = readdirSync(join(root, 'npm')).filter((name) => name !== 'README.md')
    assert.deepEqual(folders.toSorted(), platforms.toSorted())
    const expected = Object.fromEntries(targets.map((target) => [packageName(target), manifest.version]))
    assert.deepEqual(publishedManifest().optionalDependencies, expected)
    // Not in a checkout: `npm ci` rejects packages that are not published yet.
    assert.equal(manifest.optionalDependencies, undefined)
    assert.deepEqual(
      manifest.napi.targets,
      targets.map(({ triple }) => triple),
    )
  })

  for (const target of targets) {
    test(`have the right os, cpu and libc, and no install script: ${target.platform}`, () => {
      const { name, version, os, cpu, libc, files, preferUnplugged, scripts, dependencies, engines } = own(
        target.platform,
      )
      assert.deepEqual(
        { name, version, os, cpu, libc, files },
        {
          ...{ name: packageName(target), version: manifest.version, os: [target.os], cpu: [target.cpu] },
          ...{ libc: target.libc && [target.libc], files: target.files },
        },
      )
      assert.equal(preferUnplugged, true)
      assert.deepEqual([scripts, dependencies, engines], [undefined, undefined, manifest.engines])
      assert.match(readFileSync(join(root, 'npm', target.platform, 'README.md'), 'utf8'), new RegExp(name))
    })
  }

  test('are packed with the declared files, and executables are executable', posixOnly(NO_USERS), (t) => {
    const target = thisTarget()
    const folder = temporary(t, 'packed-')
    const packed = pack(stagePackage(target, builtFolder(target), folder), folder)
    const expected = [...target.files, 'LICENSE', 'README.md', 'package.json']
    assert.deepEqual(packed.files.map(({ path }) => path).toSorted(), expected.toSorted())
    for (const { path, mode } of packed.files)
      if (target.files.includes(path)) assert.equal(mode & 0o111, 0o111, path)
  })
})

test('the main package is packed without native files, sources and tests', posixOnly(NO_NPM), (t) => {
  const folder = temporary(t, 'packed-')
  const { files } = pack(stageMain(folder), folder)
  const top = new Set(files.map(({ path }) => path.split('/')[0]))
  assert.deepEqual(
    [...top].toSorted(),
    [...manifest.files, 'LICENSE', 'README.md', 'package.json'].toSorted(),
  )
  assert.deepEqual(
    files.map(({ path }) => path).filter((path) => /\.(node|rs|map)$|keeper/.test(path)),
    [],
  )
})

describe('the types', () => {
  const body = `
const child = spawnOwned('claude', ['-p', 'x'], { runId: 'r', labels: { agent: 'a' }, timeoutMs: 1, onOwnerExit: 'keep' })
child.stdout.pipe(process.stdout)
const plain: ChildProcess = child
const state: RunState = child.state
const withoutStreams = spawnOwned('x', { stdio: 'ignore' })
// @ts-expect-error it may be null
withoutStreams.stdout.pipe(process.stdout)
// @ts-expect-error no such policy
spawnOwned('x', { onOwnerExit: 'stay' })
// @ts-expect-error labels are text
spawnOwned('x', { labels: { agent: 7 } })
// @ts-expect-error not a command
spawnOwned(7)
// @ts-expect-error an id cannot be changed
child.runId = 'other'
const terminal = spawnOwned('x', [], { pty: { cols: 80, rows: 24, name: 'xterm' } })
terminal.stdin.write('ls')
terminal.stdout.on('data', () => terminal.resize(80, 24))
// @ts-expect-error a terminal has none
terminal.stderr.on('data', () => {})
// @ts-expect-error not a size
spawnOwned('x', { pty: { cols: '80' } })
const shell: pty.IPty = pty.spawn('bash', [], { cols: 80, encoding: null, sessionId: 's' })
const listening: pty.IDisposable = shell.onExit(({ exitCode, signal }) => console.log(exitCode.toFixed(), signal?.toFixed()))
shell.onData((data: string) => shell.write(data))
shell.run.wait().finally(() => listening.dispose())
const options: SpawnOwnedOptions = { cwd: new URL('file:///'), env: undefined, graceMs: undefined, uid: 1 }
const target: RunTarget = { sessionId: 's', labels: { a: 'b' } }
// @ts-expect-error not a criterion
const wrong: RunTarget = { session: 's' }
export async function run(): Promise<RunExit> {
  await using owned: OwnedProcess = spawnOwned('x', [], options)
  const { outcome, exits }: CancelResult = await cancel(target, { signal: 'SIGINT', reason: 'shutdown', graceMs: 5 })
  const known: 'cancelled' | 'already-exited' | 'not-found' = outcome
  const reasons: TerminationReason[] = exits.map((exit) => exit.reason)
  console.log(plain.pid, state, known, reasons, wrong, owned.wait(), nodes.spawnSync, nodes.spawn('x').runId)
  nodes.exec('x', { sessionId: 's' }, (error, stdout) => console.log(error?.cmd.trim(), stdout.trim())).stdout.pipe(process.stdout)
  nodes.execFile('x', ['y'], { encoding: 'buffer', timeoutMs: 5 }, (error, stdout) => console.log(error?.killed, stdout.readInt8(0)))
  console.log(nodes.fork(new URL('file:///x'), ['y'], { silent: true, labels: { a: 'b' } }).runId.trim())
  // @ts-expect-error a terminal is for spawn
  nodes.exec('x', { pty: true })
  const [listing, bytes] = [promisify(nodes.exec)('x'), promisify(nodes.execFile)('x', ['y'], { encoding: 'buffer' })]
  console.log((await listing.child.cancel()).reason, (await listing).stdout.trim(), (await bytes).stderr.readInt8(0))
  const uninstall: () => void = installSignalHandlers({ signals: ['SIGINT'], exit: false, graceMs: 5 })
  uninstall()
  const supervisor = createSupervisor({ eventLogPath: null })
  supervisor.on('orphan:killed', ({ pid, ageMs, status }) => console.log(pid.toFixed(), ageMs?.toFixed(), status === 'confirmed'))
  supervisor.on('event', (event) => event.type === 'shutdown' && event.phase === 'end' && console.log(event.durationMs))
  // @ts-expect-error no such event
  supervisor.on('orphan:found', () => {})
  const { survivors }: ShutdownReport = await supervisor.shutdown({ leaveKept: true })
  console.log(survivors.length, (await shutdown()).exits)
  const worker: Service = await supervisor.ensureService({ name: 'w', command: 'x', args: ['y'], ready: async () => true, cwd: '/' })
  console.log(worker.record.service?.trim(), worker.started, (await worker.stop()).reason, (await supervisor.stopService('w')).outcome)
  // @ts-expect-error a service has no stdio
  await supervisor.ensureService({ name: 'w', command: 'x', port: 80, stdio: 'inherit' })
  const exit = await child.cancel()
  const who: ProcessInfo | undefined = exit.survivors[0]
  console.log(who?.pid.toFixed(), who?.startToken.trim())
  return exit
}
`
  const types =
    'CancelResult, OwnedProcess, ProcessInfo, RunExit, RunState, RunTarget, Service, ShutdownReport, SpawnOwnedOptions, TerminationReason'
  const esm = `import type { ChildProcess } from 'node:child_process'
import { cancel, createSupervisor, installSignalHandlers, shutdown, spawnOwned, type ${types.replaceAll(', ', ', type ')} } from 'spawn-owned'
import { promisify } from 'node:util'
import * as nodes from 'spawn-owned/child_process'
import * as pty from 'spawn-owned/node-pty'
import 'spawn-owned/register'
${body}`
  const cjs = `import type { ChildProcess } from 'node:child_process'
import spawn_owned = require('spawn-owned')
import { promisify } from 'node:util'
import nodes = require('spawn-owned/child_process')
import pty = require('spawn-owned/node-pty')
import 'spawn-owned/register'
import type { ${types} } from 'spawn-owned'
const { cancel, createSupervisor, installSignalHandlers, shutdown, spawnOwned } = spawn_owned
${body}`

  test('compile in a strict project, as ESM and CommonJS', posixOnly(NO_LINKS, { timeout: 60_000 }), (t) => {
    assertCompiles(t, { 'esm.mts': esm, 'cjs.cts': cjs })
  })
})
