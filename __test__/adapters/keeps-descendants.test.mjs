// spawn-owned/child_process and spawn-owned/register keep what a command starts in the background,
// as Node does. The kept processes stay owned.
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { list } from 'spawn-owned'
import owned from 'spawn-owned/child_process'
import { assertAlive, assertGone, freshRegistry, until } from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { after, assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { isNode, isWindows, NO_SHELL, posixOnly, removeFolder } from '../support/system.mjs'
import { waysToStart } from '../support/ways-to-start.mjs'

const options = posixOnly(NO_SHELL, { timeout: 60_000 })
const root = fileURLToPath(new URL('../..', import.meta.url))
const daemon = treeNamed('double-fork-daemon')
const folder = mkdtempSync(join(tmpdir(), 'keeps-'))
after(() => removeFolder(folder))

/** Starts a command that leaves a daemon, and resolves when the command has exited. */
async function leftDaemon(t, way = 'spawn', more = {}) {
  const witness = openWitness(t)
  const child = waysToStart[way](owned, ...daemon.command(witness.path), more)
  t.after(() => child.cancel({ graceMs: 0 }))
  await witness.ready(daemon.ready)
  const exit = once(child, 'exit')
  if (child.connected) child.disconnect()
  else child.stdin.end()
  await exit
  return { witness, child }
}

describe('the daemon of a command outlives it, is listed, and ends with cancel:', () => {
  for (const way of Object.keys(waysToStart))
    test(way, { ...options, ...(way === 'fork' && !isNode && { skip: 'fork needs Node' }) }, async (t) => {
      const { witness, child } = await leftDaemon(t, way)
      assertAlive(witness)
      assert.deepEqual(
        list({ runId: child.runId }).map(({ state }) => state),
        ['running'],
      )
      const { reason, ok } = await child.cancel()
      assertGone(witness)
      assert.deepEqual([reason, ok], ['manual-cancel', true])
    })
})

describe('the kept descendants end', () => {
  for (const [name, signal] of [
    ['a signal that kills it', 'SIGKILL'],
    ['a SIGTERM that it handles', 'SIGTERM'],
  ])
    test(`with a kill of the root: ${name}`, options, async (t) => {
      const witness = openWitness(t)
      const code = `trap 'exit 0' TERM; '${program('stays')}' '${witness.path}' & while :; do sleep 0.01; done`
      const child = owned.spawn('sh', ['-c', code])
      t.after(() => child.cancel({ graceMs: 0 }))
      await witness.ready(1)
      child.kill(signal)
      const { reason, message, exitCode } = await child.wait()
      assertGone(witness)
      const expected =
        signal === 'SIGKILL' ? ['signal', 'ended by SIGKILL', null] : ['exit', 'exited with code 0', 0]
      assert.deepEqual([reason, message, exitCode], expected)
    })

  test('not with a signal that the root handled before it exited', options, async (t) => {
    const witness = openWitness(t)
    const code = `trap 'exit 0' USR1; '${program('stays')}' '${witness.path}' & while :; do sleep 0.01; done`
    const child = owned.spawn('sh', ['-c', code])
    t.after(() => child.cancel({ graceMs: 0 }))
    await witness.ready(1)
    const exit = once(child, 'exit')
    child.kill('SIGUSR1')
    await exit
    assert.equal((await child.usage()).processes, 1)
    assertAlive(witness)
  })

  test('with the bot, which they do not keep alive', options, async (t) => {
    const witness = openWitness(t)
    const code = `
      const { spawn } = require('node:child_process')
      spawn('sh', ['-c', ${JSON.stringify(`'${program('stays')}' '${witness.path}' & read -r _`)}],
        { stdio: ['pipe', 'ignore', 'inherit'] }).stdin.end()`
    const bot = spawn(process.execPath, ['--require', 'spawn-owned/register', '-e', code], {
      ...{ cwd: root, stdio: 'inherit', env: { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() } },
    })
    t.after(() => bot.kill('SIGKILL'))
    await witness.ready(1)
    assert.deepEqual(await once(bot, 'exit'), [0, null])
    await witness.gone(30_000)
  })
})

test("Node's timeout ends with the root", options, async (t) => {
  const { witness, child } = await leftDaemon(t, 'execFile', { timeout: 1500 })
  // The deadline would have ended it before this run of the same length.
  const other = owned.execFile('sleep', ['600'], { timeout: 1600 })
  other.on('error', () => {})
  assert.equal((await other.wait()).reason, 'overall-timeout')
  assertAlive(witness)
  assert.equal(child.state, 'running')
})

describe('the default changes with', () => {
  test('the option', options, async (t) => {
    const { witness, child } = await leftDaemon(t, 'spawn', { onLeaderExit: 'kill' })
    await child.wait()
    assertGone(witness)
  })

  test('the environment', options, async (t) => {
    t.after(() => delete process.env.SPAWN_OWNED_ON_LEADER_EXIT)
    process.env.SPAWN_OWNED_ON_LEADER_EXIT = 'kill'
    const { witness, child } = await leftDaemon(t)
    await child.wait()
    assertGone(witness)
    process.env.SPAWN_OWNED_ON_LEADER_EXIT = 'stay'
    const message = /SPAWN_OWNED_ON_LEADER_EXIT.*must be 'kill' or 'keep'/
    assert.throws(() => owned.spawn('true'), { code: 'ERR_INVALID_ARG_VALUE', message })
  })
})

const has = (command, ...args) => spawnSync(command, args).status === 0

describe('real programs', () => {
  const git = has('git', '--version') ? options : { skip: 'git is not installed' }
  test('the background maintenance of git finishes', git, async () => {
    const cwd = join(folder, 'repository')
    const env = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_SYSTEM: '/dev/null' }
    const run = (...args) => execFileSync('git', args, { cwd, env, stdio: 'pipe' })
    execFileSync('git', ['init', '-q', cwd], { env })
    for (const setting of ['user.name=a', 'user.email=a@b', 'gc.auto=1', 'gc.autoDetach=true'])
      run('config', ...setting.split('='))
    // Git estimates the number of loose objects from those whose name begins with 17.
    for (let index = 0, found = 0; found < 3; index++) {
      const name = createHash('sha1')
        .update(`blob ${String(index).length}\0${index}`)
        .digest('hex')
      if (!name.startsWith('17')) continue
      found++
      execFileSync('git', ['hash-object', '-w', '--stdin'], { cwd, env, input: String(index) })
    }
    await promisify(owned.execFile)('git', ['commit', '-q', '--allow-empty', '-m', 'x'], { cwd, env })
    const packs = () => readdirSync(join(cwd, '.git', 'objects', 'pack'))
    await until(() => packs().some((name) => name.endsWith('.pack')), 'git has written a pack')
    await until(() => list().length === 0, 'the run has ended by itself')
  })

  const tmux = has('tmux', '-V') ? options : { skip: 'tmux is not installed' }
  test('a tmux session outlives the command that starts it', tmux, async () => {
    const env = { ...process.env, TMUX_TMPDIR: folder, TMUX: '' }
    const child = owned.spawn('tmux', ['new-session', '-d', '-s', 'kept', 'sleep 600'], { env })
    assert.deepEqual(await child.exited, { exitCode: 0, signal: null })
    const { stdout } = await promisify(execFile)('tmux', ['list-sessions', '-F', '#{session_name}'], { env })
    assert.equal(stdout, 'kept\n')
    assert.deepEqual((await child.cancel()).survivors, [])
    assert.notEqual(spawnSync('tmux', ['list-sessions'], { env }).status, 0)
  })
})

test('Windows keeps descendants too', { skip: !isWindows && 'this is not Windows' }, async () => {
  const code = `require('child_process').spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6)'], { stdio: 'ignore', detached: true }).unref()`
  const child = owned.spawn(process.execPath, ['-e', code], { stdio: 'ignore' })
  await child.exited
  assert.equal((await child.usage()).processes, 1)
  assert.deepEqual((await child.cancel({ graceMs: 0 })).survivors, [])
})
