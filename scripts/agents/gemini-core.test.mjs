// The shell tool of Gemini CLI's library, with the hook. Its commands leave their session.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { assertAlive, freshRegistry, supervise } from '../../__test__/support/bots.mjs'
import { treeNamed } from '../../__test__/support/hostile-trees.mjs'
import { openWitness } from '../../__test__/support/witness.mjs'
import { root } from '../tools.mjs'
import { GEMINI_CORE, geminiCoreUrl } from './gemini-core.mjs'

const HOOK = ['--import', 'spawn-owned/register']
const KILL = { SPAWN_OWNED_ON_LEADER_EXIT: 'kill' }
/** Without it, the library starts commands in a terminal of node-pty, which no hook can own. */
const NO_PTY = { GEMINI_PTY_INFO: 'child_process' }
const GONE_WITHIN_MS = 30_000
const options = { timeout: 120_000 }
const skip =
  !process.env.AGENTS?.split(',').includes(GEMINI_CORE) &&
  'not selected; name it after npm run test:agents --'
const tree = treeNamed('double-fork-daemon')
const program = fileURLToPath(new URL('gemini-core-bot.mjs', import.meta.url))

/** Starts a bot and waits until the command of its tool call has started a daemon. */
async function working(t, { nodeArgs = HOOK, env = NO_PTY } = {}) {
  const witness = openWitness(t)
  const path = freshRegistry()
  const [file, args] = tree.command(witness.path)
  // Otherwise the library waits for the pipes of the daemon.
  const command = `${[file, ...args].map((word) => `'${word}'`).join(' ')} >/dev/null 2>&1`
  const bot = spawn(process.execPath, [...nodeArgs, program, geminiCoreUrl, command], {
    cwd: root,
    env: { ...process.env, SPAWN_OWNED_REGISTRY: path, ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  t.after(() => bot.kill('SIGKILL'))
  await witness.ready(tree.ready)
  return {
    witness,
    path,
    bot,
    async aborted() {
      bot.stdin.write('abort\n')
      return JSON.parse(await once(bot.stdout.setEncoding('utf8'), 'data'))
    },
  }
}

describe('a command of the shell tool', { skip, concurrency: 1 }, () => {
  test('is a run in the registry, and a cancel from another process leaves nothing', options, async (t) => {
    const { witness, path, bot } = await working(t)
    const supervisor = supervise(path)
    const [{ runId, botPid }, ...others] = supervisor.list()
    assert.deepEqual([botPid, others], [bot.pid, []])
    await supervisor.cancel({ runId })
    assert.ok(witness.isGone())
  })

  test('leaves nothing when its bot is SIGKILLed', options, async (t) => {
    const { witness, bot } = await working(t)
    bot.kill('SIGKILL')
    await witness.gone(GONE_WITHIN_MS)
  })

  test('leaves its daemon without the hook when its bot is SIGKILLed', options, async (t) => {
    const { witness, bot } = await working(t, { nodeArgs: [] })
    bot.kill('SIGKILL')
    await once(bot, 'exit')
    assertAlive(witness)
  })

  test('leaves nothing when it is aborted, with SPAWN_OWNED_ON_LEADER_EXIT=kill', options, async (t) => {
    const { witness, aborted } = await working(t, { env: { ...NO_PTY, ...KILL } })
    assert.deepEqual(await aborted(), { aborted: true, executionMethod: 'child_process' })
    await witness.gone(GONE_WITHIN_MS)
  })

  test('leaves its daemon without the hook when it is aborted', options, async (t) => {
    const { witness, aborted } = await working(t, { nodeArgs: [] })
    assert.deepEqual(await aborted(), { aborted: true, executionMethod: 'child_process' })
    assertAlive(witness)
  })

  test('is not owned in a terminal of node-pty', options, async (t) => {
    const { path, bot } = await working(t, { env: {} })
    assert.deepEqual(supervise(path).list(), [])
    bot.kill('SIGKILL')
  })
})
