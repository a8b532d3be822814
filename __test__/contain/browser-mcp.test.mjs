// An MCP server that starts a browser, as agents use it: its launcher detaches the browser, and the
// browser starts helpers that detach themselves. Nothing may be left after any end of the server or
// the bot. The test looks for processes that name the home directory of the server.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { childrenOf, freshRegistry, killWithHelpers, stateOf, supervise, until } from '../support/bots.mjs'
import { browser, openProfile, withoutBrowser } from '../support/browser.mjs'
import { assert, describe, script, test } from '../support/prelude.mjs'
import { isNode } from '../support/system.mjs'

const options = {
  timeout: 180_000,
  skip: withoutBrowser || (!isNode && 'the bot and its MCP server are Node programs'),
}

/** A bot whose MCP server has opened a page in a browser. */
async function browsing(t) {
  const path = freshRegistry()
  const profile = openProfile(t)
  const env = { ...profile.env, SPAWN_OWNED_REGISTRY: path }
  // The server writes files to a folder below its working directory.
  const options = { env, cwd: env.HOME }
  const bot = spawn(process.execPath, [script('../peers/bot-that-browses.mjs'), browser], options)
  t.after(() => bot.kill('SIGKILL'))
  const ended = once(bot, 'exit')
  let complaint = ''
  bot.stderr.on('data', (text) => (complaint += text))
  const lines = createInterface({ input: bot.stdout })[Symbol.asyncIterator]()
  assert.equal((await lines.next()).value, 'browsing', complaint)

  const othersThanBot = () => profile.processes().filter(({ pid }) => pid !== bot.pid)
  // Children of the server can have a lower PID than the server (PIDs wrap around) and can also
  // name playwright. The server is the one that is not a child of another.
  const named = othersThanBot().filter(({ line }) => line.includes('playwright'))
  const started = new Set(named.flatMap(({ pid }) => childrenOf(pid)))
  const server = named.find(({ pid }) => !started.has(pid))
  for (const kind of ['--type=zygote', '--type=renderer', 'crashpad_handler'])
    assert.ok(profile.helpers(kind).length > 0, `the browser has no ${kind}`)
  return { bot, ended, lines, path, profile, server, othersThanBot }
}

async function stopServer({ pid }) {
  process.kill(pid, 'SIGSTOP')
  await until(() => stateOf(pid) === 'T', 'the server has stopped')
}

describe('an MCP server with a browser leaves nothing behind when', { ...options, concurrency: 2 }, () => {
  test('the bot cancels it', options, async (t) => {
    const { bot, lines, othersThanBot } = await browsing(t)
    bot.stdin.end()
    const { reason, survivors } = JSON.parse((await lines.next()).value)
    assert.deepEqual(othersThanBot(), [])
    assert.deepEqual([reason, survivors], ['manual-cancel', []])
  })

  // A server that works exits when its input ends, without our help. So the server is stopped.
  test('it hangs and its bot is killed', options, async (t) => {
    const { bot, ended, profile, server } = await browsing(t)
    await stopServer(server)
    bot.kill('SIGKILL')
    await ended
    // No process is left that could report the end, so look for processes.
    await until(() => profile.processes().length === 0, 'no process is left', 60_000)
  })

  test(
    'it hangs, its bot and the keepers are killed together, and the next bot reaps',
    options,
    async (t) => {
      const { bot, ended, path, profile, server } = await browsing(t)
      await stopServer(server)
      await killWithHelpers(bot.pid)
      await ended
      const { killed, skipped, failed } = await supervise(path).reapOrphans()
      profile.assertUnused()
      assert.deepEqual([killed, skipped, failed], [[server.pid], [], []])
    },
  )
})
