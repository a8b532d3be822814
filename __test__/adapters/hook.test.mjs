// node --import spawn-owned/register: bots and libraries that use node:child_process own the
// processes that they start.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdirSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { createSupervisor } from 'spawn-owned'
import { assertAlive, freshRegistry, startBot } from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { assert, describe, openWitness, program, script, test } from '../support/prelude.mjs'
import {
  ENDS_WITH_PARENT,
  forScripts,
  isNode,
  isWindows,
  NO_KEEPER,
  nodeOnly,
  posixOnly,
  removeFolder,
} from '../support/system.mjs'
import { waysToStart } from '../support/ways-to-start.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const peers = fileURLToPath(new URL('../peers', import.meta.url))
const IMPORT = ['--import', 'spawn-owned/register']
const REQUIRE = ['--require', 'spawn-owned/register']
const NOT_NODES_OPTIONS = 'Bun and Deno take other arguments than Node'
const options = nodeOnly(NOT_NODES_OPTIONS, { timeout: 120_000 })
const onPosix = nodeOnly(NOT_NODES_OPTIONS, posixOnly(ENDS_WITH_PARENT, { timeout: 120_000 }))
const tree = treeNamed('double-fork-daemon')

/** Options of a test that needs execa 10. */
function forExeca10(options) {
  const isTooOld = Number.parseInt(process.versions.node, 10) < 22
  return { ...options, skip: options.skip || (isTooOld && 'execa 10 needs Node 22 or newer') }
}

const environment = (more) => ({ ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry(), ...more })

/**
 * The parsed JSON that `node args…` prints. stderr must be empty, except on Windows, where Node
 * warns of channels in workers.
 */
async function outputOf(args, { env, cwd = root } = {}) {
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args, {
    ...{ cwd, env: environment(env), timeout: 60_000 },
  })
  if (!isWindows) assert.equal(stderr, '')
  return JSON.parse(stdout)
}

/** The same for a piece of code. */
const outputOfCode = (nodeArgs, code, args = []) =>
  outputOf([...nodeArgs, '--input-type=module', '-e', code, '--', ...args])

/** Starts a bot with these arguments and waits until the bot's tree is ready. */
async function standing(t, nodeArgs, bot, { cwd = root } = {}) {
  const witness = openWitness(t)
  const [file, args] = tree.command(witness.path)
  const child = spawn(process.execPath, [...nodeArgs, ...bot, file, ...args], {
    ...{ cwd, env: environment(), stdio: ['pipe', 'ignore', 'inherit'] },
  })
  t.after(() => child.kill('SIGKILL'))
  await witness.ready(tree.ready)
  return { witness, bot: child }
}

/** Defines two tests that show the effect of the hook: with and without it. */
function testWithAndWithoutHook(name, bot, nodeArgs, { options = onPosix, ...more } = {}) {
  test(`${name}, and no process of the daemon is left`, options, async (t) => {
    const { witness, bot: child } = await standing(t, nodeArgs, bot, more)
    child.kill('SIGKILL')
    await witness.gone(30_000)
  })

  test(`${name}, and without the hook the daemon lives on`, options, async (t) => {
    const { witness, bot: child } = await standing(t, [], bot, more)
    child.kill('SIGKILL')
    await once(child, 'exit')
    // No event shows that the daemon stays, so wait ten times as long as the hook needs.
    await delay(1000)
    assertAlive(witness)
  })
}

describe('a bot is SIGKILLed that has started a daemon with', { concurrency: 2 }, () => {
  const bot = (way) => [script('bot-of-child-process.mjs'), 'node:child_process', way]
  for (const way of Object.keys(waysToStart)) testWithAndWithoutHook(way, bot(way), IMPORT)

  const libraries = {
    mjs: ['execa', 'execa-9', 'cross-spawn', 'tinyexec', 'zx'],
    cjs: ['cross-spawn', 'zx'],
  }
  const hooks = { mjs: IMPORT, cjs: REQUIRE }
  for (const [kind, names] of Object.entries(libraries)) {
    for (const name of names) {
      const command = [join(peers, `bot-of-a-library.${kind}`), name]
      const options = name === 'execa' ? forExeca10(onPosix) : onPosix
      testWithAndWithoutHook(`${name} (${kind})`, command, hooks[kind], { cwd: peers, options })
    }
  }
})

describe('with execa 10, the owned process', { concurrency: 2 }, () => {
  const cwd = peers
  const start = (settings) => `import { execa } from 'execa'
    const [file, ...args] = process.argv.slice(1)
    const subprocess = execa(file, args, { reject: false, ${settings} })`
  const print = (value) => `console.log(JSON.stringify(${value}))`
  const inBot = (code, args = ['cat']) =>
    outputOf([...IMPORT, '--input-type=module', '-e', code, '--', ...args], { cwd })

  test('is nodeChildProcess, with the options of a run', forExeca10(options), async () => {
    const code = `${start("sessionId: 'chat-7'")}
      import { list } from 'spawn-owned'
      const [{ sessionId }] = list()
      const { reason } = await subprocess.nodeChildProcess.cancel()
      ${print('[sessionId, reason, (await subprocess).signal]')}`
    assert.deepEqual(await inBot(code), ['chat-7', 'manual-cancel', 'SIGTERM'])
  })

  for (const settings of ['', "killDescendants: true, onLeaderExit: 'kill'"]) {
    test(`leaves nothing after kill() with the options {${settings}}`, forExeca10(onPosix), async (t) => {
      const witness = openWitness(t)
      const [file, args] = tree.command(witness.path)
      // The bot ends the tree when the test says so.
      const code = `${start(`stdio: 'ignore', ${settings}`)}
        process.stdin.once('data', () => subprocess.kill())
        await subprocess
        await subprocess.nodeChildProcess.wait()
        process.stdin.destroy()`
      const bot = spawn(
        process.execPath,
        [...IMPORT, '--input-type=module', '-e', code, '--', file, ...args],
        {
          ...{ cwd, env: environment(), stdio: ['pipe', 'ignore', 'inherit'] },
        },
      )
      t.after(() => bot.kill('SIGKILL'))
      await witness.ready(tree.ready)
      bot.stdin.write('end')
      const [exitCode] = await once(bot, 'exit')
      assert.equal(exitCode, 0)
      assert.ok(witness.isGone())
    })
  }
})

describe('every form of import gets the owned functions', { concurrency: 2 }, () => {
  const FORMS = script('every-form-of-import.mjs')
  const all = (forms, expected, fork = expected) => {
    assert.equal(Object.keys(forms).length, 7)
    const functions = { spawn: expected, exec: expected, execFile: expected, fork }
    for (const [form, owned] of Object.entries(forms)) assert.deepEqual(owned, functions, form)
  }
  test('only with the hook', options, async () => all(await outputOf([FORMS]), false))
  test('with --import', options, async () => all(await outputOf([...IMPORT, FORMS]), true))
  test('with --require', options, async () => all(await outputOf([...REQUIRE, FORMS]), true))
  test('with both, twice', options, async () =>
    all(await outputOf([...IMPORT, ...REQUIRE, ...IMPORT, FORMS]), true),
  )
  test('through NODE_OPTIONS', options, async () =>
    all(await outputOf([FORMS], { env: { NODE_OPTIONS: IMPORT.join(' ') } }), true),
  )

  test('in Bun and Deno, except fork', { skip: isNode && 'this is Node', timeout: 60_000 }, async () => {
    const preload = `--preload=${join(root, 'dist', 'register.mjs')}`
    all(await outputOf([...forScripts, preload, FORMS]), true, 'ERR_OWNED_RUNTIME')
  })

  test('in a worker', options, async () => {
    const code = `new (require('node:worker_threads').Worker)(process.argv[1])`
    all(await outputOf([...IMPORT, '-e', code, '--', FORMS]), true)
  })

  test('also if it was evaluated before the hook', options, async () => {
    const code = `import { spawn } from 'node:child_process'
      const before = 'runId' in spawn('true')
      await import('spawn-owned/register')
      console.log(JSON.stringify([before, 'runId' in spawn('true')]))`
    assert.deepEqual(await outputOfCode([], code), [false, true])
  })

  test('once, also if the hook is loaded several times', options, async () => {
    const code = `import cp from 'node:child_process'
      import { createRequire } from 'node:module'
      const { spawn, exec } = cp
      await import('spawn-owned/register')
      const { spawn: owned } = await import('spawn-owned/child_process')
      createRequire(process.cwd() + '/')('spawn-owned/register')
      console.log(JSON.stringify([spawn === cp.spawn, exec === cp.exec, spawn === owned]))`
    assert.deepEqual(await outputOfCode(IMPORT, code), [true, true, true])
  })
})

describe('Node’s own use of child_process works with the hook:', () => {
  const NESTED = script('nested-by-fork.mjs')
  const asks = (cwd) => `const { fork } = require('node:child_process')
    const child = fork(process.argv[1], { cwd: ${JSON.stringify(cwd)} })
    child.on('message', (answer) => console.log(JSON.stringify(answer))).send('hello')`

  test('fork has a channel, and the forked script has the hook, too', options, async () => {
    const expected = { message: 'hello', isOwned: true, ids: 2 }
    for (const cwd of [root, tmpdir()]) {
      for (const hook of [IMPORT, REQUIRE])
        assert.deepEqual(await outputOf([...hook, '-e', asks(cwd), '--', NESTED]), expected)
    }
  })

  test('a Node process in another folder that inherits NODE_OPTIONS finds the hook', options, async () => {
    const nested = `'runId' in require('child_process').spawn('true')`
    const code = `require('child_process').execFile(process.execPath, ['-p', ${JSON.stringify(nested)}], { cwd: require('os').tmpdir() },
      (error, stdout) => console.log(JSON.stringify([error?.message, stdout.trim()])))`
    for (const hook of [IMPORT.join(' '), IMPORT.join('='), REQUIRE.join(' '), '-r "spawn-owned/register"'])
      assert.deepEqual(await outputOf(['-e', code], { env: { NODE_OPTIONS: hook } }), [null, 'true'], hook)
  })

  test('a cluster serves requests', options, async () => {
    const seen = await outputOf([...IMPORT, script('serves-in-a-cluster.mjs')])
    // On Windows, Node starts them itself: see docs/child_process.md.
    assert.deepEqual(seen, { answer: 'served', owned: [!isWindows, !isWindows] })
  })

  test('another copy of spawn-owned that is loaded later works', options, async (t) => {
    const copy = join(mkdtempSync(join(tmpdir(), 'copy-')), 'spawn-owned')
    t.after(() => removeFolder(dirname(copy)))
    mkdirSync(copy)
    for (const part of ['package.json', 'dist', 'native'])
      cpSync(join(root, part), join(copy, part), { recursive: true })
    const code = `import { createRequire } from 'node:module'
      const { spawnOwned } = createRequire(import.meta.url)(process.argv[1])
      const child = spawnOwned(process.execPath, [process.argv[2]], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
      child.on('message', (answer) => console.log(JSON.stringify(answer))).send('hello')`
    const { message, ids } = await outputOfCode(IMPORT, code, [copy, NESTED])
    assert.deepEqual({ message, ids }, { message: 'hello', ids: 1 })
  })
})

test('a process that is detached and unref’ed ends with the bot', options, async (t) => {
  const witness = openWitness(t)
  const code = `import { spawn } from 'node:child_process'
    const child = spawn(process.argv[1], [process.argv[2]], { detached: true, stdio: 'ignore' })
    child.unref()
    child.on('spawn', () => console.log(JSON.stringify('started')))`
  assert.equal(await outputOfCode(IMPORT, code, [program('stays'), witness.path]), 'started')
  witness.release()
  await witness.gone(30_000)
})

describe('when a bot with the hook starts,', () => {
  const withKeepers = nodeOnly(NOT_NODES_OPTIONS, posixOnly(NO_KEEPER, { timeout: 120_000 }))
  /** A run whose bot and helpers were killed together. */
  async function orphan(t) {
    const path = freshRegistry()
    const witness = openWitness(t)
    const bot = await startBot(t, path)
    await bot.ask('spawn', program('stays'), [witness.path])
    await witness.ready(1)
    await bot.killWithHelpers()
    assertAlive(witness)
    return { witness, path }
  }
  const boot = (env) => outputOf([...IMPORT, '-p', '1'], { env })

  test('orphans are ended if SPAWN_OWNED_REAP is 1', withKeepers, async (t) => {
    const { witness, path } = await orphan(t)
    await boot({ SPAWN_OWNED_REGISTRY: path, SPAWN_OWNED_REAP: '1' })
    assert.ok(witness.isGone())
  })

  test(
    'orphans are not ended without SPAWN_OWNED_REAP, nor by a bot that is in a run',
    withKeepers,
    async (t) => {
      const { witness, path } = await orphan(t)
      await boot({ SPAWN_OWNED_REGISTRY: path })
      const env = { ...process.env, SPAWN_OWNED_REGISTRY: path, SPAWN_OWNED_REAP: '1' }
      const outer = createSupervisor({ registryPath: freshRegistry() })
      const inner = outer.spawnOwned(process.execPath, [...IMPORT, '-p', '1'], { env, stdio: 'ignore' })
      assert.equal((await inner.wait()).exitCode, 0)
      assertAlive(witness)
    },
  )

  test(
    'orphans are ended also if the bot carries the cookie of a run that has ended',
    withKeepers,
    async (t) => {
      const { witness, path } = await orphan(t)
      const stale = `an-earlier-run:~${'0'.repeat(32)}`
      await boot({ SPAWN_OWNED_REGISTRY: path, SPAWN_OWNED_REAP: '1', SPAWN_OWNED_RUN: stale })
      assert.ok(witness.isGone())
    },
  )

  test('orphans are not ended if the registry proves that the bot is in a run', withKeepers, async (t) => {
    const { witness, path } = await orphan(t)
    const outer = createSupervisor({ registryPath: path })
    const run = outer.spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
    t.after(() => run.stdin.destroy())
    const { cookieKey } = outer.list().find(({ runId }) => runId === run.runId)
    await boot({
      SPAWN_OWNED_REGISTRY: path,
      SPAWN_OWNED_REAP: '1',
      SPAWN_OWNED_RUN: `${run.runId}:~${cookieKey}`,
    })
    assertAlive(witness)
    await run.cancel({ graceMs: 0 })
  })

  test('no file is written until a process is started', options, async () => {
    const path = freshRegistry()
    await boot({ SPAWN_OWNED_REGISTRY: path })
    assert.equal(existsSync(dirname(path)), false)
  })
})
