// The agents that bots run. As owned runs they behave as under child_process, and leave no process.
// They get an empty home and nothing else, so they find no account and no settings of the user.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { freshRegistry, startBot, supervise, until } from '../../__test__/support/bots.mjs'
import { assertNoProcessNames, endWhoNames, whoNames } from '../../__test__/support/onlooker.mjs'
import { removeFolder } from '../../__test__/support/system.mjs'
import { agents, homes } from './list.mjs'

/** On a busy machine some agents take many seconds before they print anything. */
const PATIENCE_MS = 120_000
const options = { timeout: 2 * PATIENCE_MS }

/** Colours and cursor positions: plain text has none. */
const DRAWN = new RegExp(`${String.fromCharCode(27)}\\[`)

/** A home for the test `t`, and the environment that points to it. */
function openHome(t) {
  const home = mkdtempSync(join(homes, 'home-'))
  t.after(async () => {
    await endWhoNames(home)
    removeFolder(home)
  })
  const { PATH } = process.env
  return { home, env: { PATH, HOME: home, TMPDIR: home, TERM: 'xterm-256color' } }
}

/** Its output and exit code under child_process. */
function plainly(command, args, { env, cwd }) {
  return new Promise((resolve) => {
    const child = execFile(command, args, { env, cwd }, (error, stdout) =>
      resolve({ stdout, exitCode: error?.code ?? 0 }),
    )
    child.stdin.end()
  })
}

async function owned(command, args, { env, cwd }) {
  const child = supervise(freshRegistry()).spawnOwned(command, args, { env, cwd })
  child.stdin.end()
  child.stderr.resume()
  const [pieces, { exitCode }] = await Promise.all([child.stdout.toArray(), child.wait()])
  return { stdout: Buffer.concat(pieces).toString(), exitCode }
}

/** Resolves when one of its streams has matched `expected`. */
async function says(streams, expected) {
  let text = ''
  for (const stream of streams) stream?.on('data', (bytes) => (text += bytes))
  await until(() => expected.test(text), `it says ${expected}`, PATIENCE_MS).catch((error) => {
    throw new Error(`${error.message}, but:\n${text}`)
  })
}

for (const { name, version, command, servers, isThere } of agents) {
  const isAsked = process.env.AGENTS?.split(',').includes(name)
  const skip = !isThere
    ? `${name} was not fetched`
    : !isAsked && 'not selected; name it after npm run test:agents --'
  const [program, ...before] = command

  describe(name, { skip, concurrency: 1 }, () => {
    for (const args of [['--version'], ['--help'], ['--no-such-option']])
      test(`${args}: says what it says under child_process, and ends as there`, options, async (t) => {
        const { home, env } = openHome(t)
        const line = [...before, ...args]
        // A first start, so that both compared runs find what it prepares.
        await plainly(program, line, { env, cwd: home })
        const expected = await plainly(program, line, { env, cwd: home })
        assert.deepEqual(await owned(program, line, { env, cwd: home }), expected)
        assertNoProcessNames(home)
        if (args[0] === '--version') assert.ok(expected.stdout.includes(version), expected.stdout)
      })

    for (const [mode, server] of Object.entries(servers)) {
      const line = [...before, ...mode.split(' ')]

      test(`${mode}: a cancel leaves nothing`, options, async (t) => {
        const { home, env } = openHome(t)
        const child = supervise(freshRegistry()).spawnOwned(program, line, { env, cwd: home })
        t.after(() => child.cancel({ signal: 'SIGKILL' }))
        if (server.asks) child.stdin.write(server.asks)
        await says([child.stdout, child.stderr], server.says)
        const { reason, survivors } = await child.cancel()
        assertNoProcessNames(home)
        assert.deepEqual([reason, survivors], ['manual-cancel', []])
      })

      test(`${mode}: nothing is left when its bot is killed`, options, async (t) => {
        const { home, env } = openHome(t)
        const bot = await startBot(t, freshRegistry())
        const output = { file: join(home, 'output') }
        const wish = { env, cwd: home, stdio: ['pipe', output, output] }
        await bot.ask('spawn', program, line, wish)
        // An agent that waits for a request is killed during its start.
        if (!server.asks)
          await until(() => server.says.test(readFileSync(output.file, 'utf8')), 'it is ready')
        assert.ok(whoNames(home).length > 0, 'the agent does not run')
        await bot.kill()
        await until(() => whoNames(home).length === 0, 'all its processes are gone', PATIENCE_MS)
      })
    }

    test('in a terminal: it draws something, and a cancel leaves nothing', options, async (t) => {
      const { home, env } = openHome(t)
      const pty = { cols: 100, rows: 30 }
      const child = supervise(freshRegistry()).spawnOwned(program, before, { env, cwd: home, pty })
      t.after(() => child.cancel({ signal: 'SIGKILL' }))
      await says([child.stdout], DRAWN)
      const { reason, survivors } = await child.cancel()
      assertNoProcessNames(home)
      assert.deepEqual([reason, survivors], ['manual-cancel', []])
    })
  })
}
