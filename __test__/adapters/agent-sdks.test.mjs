// The Codex, OpenCode and Copilot SDKs start their agents themselves. With the hook, a bot that does
// not know spawn-owned owns them: the real SDKs, with a stand-in for each agent. The tools of an agent
// leave its session.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { test as anyTest, describe } from 'node:test'
import { fileURLToPath } from 'node:url'
import { standInFor } from '../peers/sdks.mjs'
import { assertAlive, fileHas, freshRegistry, supervise } from '../support/bots.mjs'
import { standIn } from '../support/stand-ins.mjs'
import { NO_INTERPRETERS, nodeOnly, posixOnly, removeFolder } from '../support/system.mjs'

const peers = fileURLToPath(new URL('../peers', import.meta.url))
const HOOK = ['--import', 'spawn-owned/register']
const GONE_WITHIN_MS = 30_000
const options = nodeOnly(
  'Bun and Deno take other arguments than Node',
  posixOnly(NO_INTERPRETERS, { timeout: 90_000 }),
)
const test = (name, body) => anyTest(name, options, body)

/** A folder for the PATH in which the stand-in has the name of the agent. */
function folderWith(t, name) {
  const folder = mkdtempSync(join(tmpdir(), 'agent-'))
  t.after(() => removeFolder(folder))
  symlinkSync(standInFor(name), join(folder, name))
  return folder
}

/** Starts a bot with this SDK. Resolves when the agent works and its tools run. */
async function working(t, sdk, { nodeArgs = HOOK, env } = {}) {
  const agent = standIn(t, env)
  const path = freshRegistry()
  const bot = spawn(process.execPath, [...nodeArgs, join(peers, 'sdk-bot.mjs'), sdk], {
    cwd: peers,
    env: {
      ...agent.env,
      PATH: folderWith(t, 'opencode') + delimiter + process.env.PATH,
      SPAWN_OWNED_REGISTRY: path,
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  t.after(() => bot.kill('SIGKILL'))
  const lines = bot.stdout.setEncoding('utf8').iterator({ destroyOnReturn: false })
  let said = ''
  const saysThat = async (text) => {
    while (!said.includes(text)) {
      const { done, value } = await lines.next()
      assert.ok(!done, `the bot ended and did not say ${text}, but:\n${said}`)
      said += value
    }
  }
  await saysThat('working\n')
  await agent.toolsRun()
  return {
    bot,
    path,
    ...agent,
    saysThat,
    async asked(command) {
      bot.stdin.write(`${command}\n`)
      await saysThat(`${command}: done\n`)
    },
    async allGone() {
      await agent.agent.gone(GONE_WITHIN_MS)
      await agent.tools.gone(GONE_WITHIN_MS)
    },
  }
}

const own = {
  codex: 'an abort of the turn',
  opencode: 'server.close()',
  'copilot-forced': 'client.forceStop()',
}

for (const [sdk, itsCancel] of Object.entries(own)) {
  describe(`${sdk}:`, { concurrency: 2 }, () => {
    test('the agent is a run in the registry, and a cancel from another process leaves nothing', async (t) => {
      const { path, bot, assertAllGone } = await working(t, sdk)
      const supervisor = supervise(path)
      const runs = supervisor.list()
      assert.deepEqual(
        runs.map(({ commandPreview, botPid }) => [/stand-in|opencode/.test(commandPreview), botPid]),
        [[true, bot.pid]],
      )
      await supervisor.cancel({ runId: runs[0].runId })
      assertAllGone()
      await fileHas(path, 0)
    })

    test(`${itsCancel} leaves nothing`, async (t) => {
      const { asked, allGone } = await working(t, sdk)
      await asked('cancel')
      await allGone()
    })

    test(`${itsCancel} leaves the tools without the hook`, async (t) => {
      const { asked, agent, tools } = await working(t, sdk, { nodeArgs: [] })
      await asked('cancel')
      await agent.gone(GONE_WITHIN_MS)
      assertAlive(tools)
    })

    test('shutdown() leaves nothing', async (t) => {
      const { asked, assertAllGone } = await working(t, sdk)
      await asked('shutdown')
      assertAllGone()
    })

    test('a SIGKILL of the bot leaves nothing', async (t) => {
      const { bot, allGone } = await working(t, sdk)
      bot.kill('SIGKILL')
      await allGone()
    })

    test('a SIGKILL of the bot leaves the tools without the hook', async (t) => {
      const { bot, tools } = await working(t, sdk, { nodeArgs: [] })
      bot.kill('SIGKILL')
      await once(bot, 'exit')
      assertAlive(tools)
    })
  })
}

/** The agent exits by itself: after a turn of Codex, and when the Copilot SDK requests it. */
describe('an agent that exits', { concurrency: 2 }, () => {
  const KILL = { SPAWN_OWNED_ON_LEADER_EXIT: 'kill' }

  /** Resolves when the turn of Codex is complete, and its agent has exited. */
  async function completed({ path, saysThat, agent }) {
    const [{ pid }] = supervise(path).list()
    process.kill(pid, 'SIGUSR2')
    await saysThat('turn: complete\n')
    await agent.gone(GONE_WITHIN_MS)
  }

  test('codex: leaves its tools, which are owned and end with the bot', async (t) => {
    const all = await working(t, 'codex')
    await completed(all)
    assertAlive(all.tools)
    assert.equal(supervise(all.path).list().length, 1)
    all.bot.kill('SIGKILL')
    await all.allGone()
  })

  test('codex: leaves nothing with SPAWN_OWNED_ON_LEADER_EXIT=kill', async (t) => {
    const all = await working(t, 'codex', { env: KILL })
    await completed(all)
    await all.allGone()
  })

  // Without this setting it depends on which comes first: its own exit, or the SDK's kill.
  test('copilot: leaves nothing with SPAWN_OWNED_ON_LEADER_EXIT=kill', async (t) => {
    const { asked, allGone } = await working(t, 'copilot', { env: KILL })
    await asked('cancel')
    await allGone()
  })

  test('copilot: leaves nothing if the SDK must kill it', async (t) => {
    const { asked, allGone } = await working(t, 'copilot', { env: { STAND_IN_STAYS: '1' } })
    await asked('cancel')
    await allGone()
  })
})
