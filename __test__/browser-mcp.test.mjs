// An MCP server that starts a browser, as agents have it: its launcher detaches the browser, which starts helpers that detach themselves.
// However the bot ends it, or ends, nothing is left. The witness is a look at everybody who names the home that they were given.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { describe, test } from 'node:test'
import { childrenOf, freshRegistry, killWithHelpers, stateOf, supervise, until } from './support/bots.mjs'
import { browser, openProfile, withoutBrowser } from './support/browser.mjs'
import { script } from './support/fixtures.mjs'
import { isNode } from './support/system.mjs'

const options = {
  timeout: 180_000,
  skip: withoutBrowser || (!isNode && 'the bot, and the server that it starts, are programs for Node'),
}

/** A bot whose MCP server has a browser with a page. */
async function browsing(t) {
  const path = freshRegistry()
  const profile = openProfile(t)
  const env = { ...profile.env, SPAWN_OWNED_REGISTRY: path }
  // The server writes down where it was, in a folder below the current one.
  const options = { env, cwd: env.HOME }
  const bot = spawn(process.execPath, [script('../peers/bot-that-browses.mjs'), browser], options)
  t.after(() => bot.kill('SIGKILL'))
  const ended = once(bot, 'exit')
  let complaint = ''
  bot.stderr.on('data', (text) => (complaint += text))
  const lines = createInterface({ input: bot.stdout })[Symbol.asyncIterator]()
  assert.equal((await lines.next()).value, 'browsing', complaint)

  const apart = () => profile.processes().filter(({ pid }) => pid !== bot.pid)
  // What it has started may name it, too, and may have a lower number: these begin again.
  const named = apart().filter(({ line }) => line.includes('playwright'))
  const started = new Set(named.flatMap(({ pid }) => childrenOf(pid)))
  const server = named.find(({ pid }) => !started.has(pid))
  for (const kind of ['--type=zygote', '--type=renderer', 'crashpad_handler'])
    assert.ok(profile.helpers(kind).length > 0, `it has no ${kind}`)
  return { bot, ended, lines, path, profile, server, apart }
}

async function hangs({ pid }) {
  process.kill(pid, 'SIGSTOP')
  await until(() => stateOf(pid) === 'T', 'the server has stopped')
}

describe('an MCP server with a browser leaves nothing behind when', { ...options, concurrency: 2 }, () => {
  test('it is cancelled', options, async (t) => {
    const { bot, lines, apart } = await browsing(t)
    bot.stdin.end()
    const { reason, survivors } = JSON.parse((await lines.next()).value)
    assert.deepEqual(apart(), [])
    assert.deepEqual([reason, survivors], ['manual-cancel', []])
  })

  // One that works ends by itself when its input does, if it can. That is no merit of ours.
  test('it hangs, and its bot is killed', options, async (t) => {
    const { bot, ended, profile, server } = await browsing(t)
    await hangs(server)
    bot.kill('SIGKILL')
    await ended
    // Nobody is left who would tell.
    await until(() => profile.processes().length === 0, 'everything is gone', 60_000)
  })

  test('it hangs, bot and keepers were killed together, and the next bot reaps', options, async (t) => {
    const { bot, ended, path, profile, server } = await browsing(t)
    await hangs(server)
    await killWithHelpers(bot.pid)
    await ended
    const { killed, skipped, failed } = await supervise(path).reapOrphans()
    profile.assertUnused()
    assert.deepEqual([killed, skipped, failed], [[server.pid], [], []])
  })
})
