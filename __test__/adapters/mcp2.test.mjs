// spawn-owned/mcp with version 2 of the SDK (@modelcontextprotocol/client): its real Client with a
// real server, in a folder in which only that version is installed, or both.
import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { freshRegistry } from '../support/bots.mjs'
import { assert, openWitness, program } from '../support/prelude.mjs'
import { forScripts, NO_LINKS, posixTests, removeFolder } from '../support/system.mjs'

const { test } = posixTests(NO_LINKS)
const root = fileURLToPath(new URL('../..', import.meta.url))
const peers = join(root, '__test__', 'peers')
const everything = join(
  ...[peers, 'node_modules', '@modelcontextprotocol', 'server-everything', 'dist', 'index.js'],
)
const direct = { command: process.execPath, args: [...forScripts, everything, 'stdio'], stderr: 'ignore' }
const options = { timeout: 60_000 }

/** A folder with a copy of this package, the given packages and the bot. Returns the bot's path. */
function install(t, ...packages) {
  const folder = mkdtempSync(join(tmpdir(), 'mcp-client-'))
  t.after(() => removeFolder(folder))
  const modules = join(folder, 'node_modules')
  for (const name of ['package.json', 'dist', 'native'])
    cpSync(join(root, name), join(modules, 'spawn-owned', name), { recursive: true })
  for (const name of packages) {
    mkdirSync(dirname(join(modules, name)), { recursive: true })
    symlinkSync(join(peers, 'node_modules', name), join(modules, name), 'junction')
  }
  const bot = join(folder, 'bot.mjs')
  cpSync(join(peers, 'mcp-client-bot.mjs'), bot)
  return bot
}

async function converse(bot, mode, parameters) {
  const args = [...forScripts, bot, mode, JSON.stringify(parameters)]
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() }
  const { stdout } = await promisify(execFile)(process.execPath, args, { env })
  return JSON.parse(stdout)
}

const good = { tools: true, text: 'Echo: hello', isOnlyOne: true, entries: 0 }

test('a Client of version 2 converses with a server, and close() leaves no process', options, async (t) => {
  const witness = openWitness(t)
  const line = '"$1" "$2" & shift 2; exec "$@"'
  const args = ['-c', line, 'sh', program('half-setsid'), witness.path, direct.command, ...direct.args]
  const bot = install(t, '@modelcontextprotocol/client')
  const parameters = { command: 'sh', args, stderr: 'ignore', closeMs: 100, graceMs: 500 }
  const [heard] = await Promise.all([converse(bot, 'default', parameters), witness.ready(2)])
  assert.deepEqual(heard, { ...good, states: ['exited'] })
  await witness.gone(20_000)
})

test('it works if version 1 is installed too', options, async (t) => {
  const bot = install(t, '@modelcontextprotocol/client', '@modelcontextprotocol/sdk')
  assert.deepEqual(await converse(bot, 'default', direct), { ...good, states: ['exited'] })
})

test(
  'to learn the protocol of an old server, it starts a second one, which is gone then',
  options,
  async (t) => {
    const bot = install(t, '@modelcontextprotocol/client')
    assert.deepEqual(await converse(bot, 'auto', direct), { ...good, states: ['exited', 'exited'] })
  },
)
