// spawn-owned/mcp: the real SDK's Client with a real server, compared with the SDK's own transport.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { spawnOwned } from 'spawn-owned'
import { StdioClientTransport } from 'spawn-owned/mcp'
import { importPeer } from '../peers/index.mjs'
import { assertAlive, assertGone, fileHas, freshRegistry, supervise } from '../support/bots.mjs'
import { ping, sh, transport } from '../support/mcp.mjs'
import { assert, openWitness, program } from '../support/prelude.mjs'
import { forScripts, NO_SESSIONS, posixTests, removeFolder } from '../support/system.mjs'

const { describe, test: anyTest } = posixTests(NO_SESSIONS)
const { Client } = await importPeer('@modelcontextprotocol/sdk/client/index.js')
const stock = await importPeer('@modelcontextprotocol/sdk/client/stdio.js')
const peer = (name) => fileURLToPath(new URL(`../peers/${name}`, import.meta.url))
const root = fileURLToPath(new URL('../..', import.meta.url))

const everything = createRequire(peer('index.mjs')).resolve(
  '@modelcontextprotocol/server-everything/dist/index.js',
)

const options = { timeout: 300_000 }

/** Shorter than the time limit after which the fixtures end themselves. */
const test = (name, body) => anyTest(name, { timeout: 45_000 }, body)
const GONE_WITHIN_MS = 30_000
const direct = { command: process.execPath, args: [...forScripts, everything, 'stdio'], stderr: 'ignore' }

/** A server behind a wrapper that `leaves` or `stays`, with a helper that has become a daemon. */
function wrapped(t, what) {
  const witness = openWitness(t)
  const args = [...forScripts, peer('wrapped-server.mjs'), witness.path, program('double-fork-daemon'), what]
  return {
    witness,
    parameters: { command: process.execPath, args, stderr: 'ignore' },
    stands: () => witness.ready(3),
    /** Asserts that the server itself, not only its helper, is alive. It ends with the test. */
    assertLeft() {
      const server = Number(readFileSync(`${witness.path}.pid`, 'utf8'))
      t.after(() => process.kill(server, 'SIGKILL'))
      assertAlive(witness)
      assert.ok(process.kill(server, 0))
    },
  }
}

/** Connects a client to a server through a transport. */
async function connect(t, parameters, Transport) {
  const between = transport(t, parameters, Transport)
  const client = new Client({ name: 'bot', version: '1.0.0' })
  const closed = new Promise((resolve) => {
    client.onclose = resolve
  })
  await client.connect(between)
  return { client, transport: between, run: between.run, closed }
}

async function echo(client, message) {
  const { content } = await client.callTool({ name: 'echo', arguments: { message } })
  return content[0].text
}

/** From now on the server does not exit by itself when its stdin ends. */
const keepBusy = (client) => client.callTool({ name: 'toggle-simulated-logging', arguments: {} })

describe('a server', options, () => {
  test('answers, is in the registry, and has no process left when close() resolves', async (t) => {
    const path = freshRegistry()
    const supervisor = supervise(path)
    const labels = { server: 'everything' }
    const ours = { supervisor, sessionId: 's', labels, commandPreview: 'the everything server' }
    const { client, transport, run } = await connect(t, { ...direct, ...ours })
    const { tools } = await client.listTools()
    assert.ok(tools.some(({ name }) => name === 'echo'))
    assert.equal(await echo(client, 'hello'), 'Echo: hello')
    const [record] = supervisor.list({ sessionId: 's' })
    assert.deepEqual([record.pid, record.labels], [transport.pid, labels])
    assert.equal(record.commandPreview, 'the everything server')
    await client.close()
    assert.deepEqual([run.state, transport.pid, transport.run], ['exited', null, run])
    const { reason, exitCode } = await run.wait()
    assert.deepEqual([reason, exitCode], ['exit', 0])
    await fileHas(path, 0)
  })

  test('has the same environment as with the SDK’s transport, and the added variables', async (t) => {
    process.env.BOT_SECRET = 'the bot’s own'
    t.after(() => delete process.env.BOT_SECRET)
    const environmentOf = async (Transport) => {
      const { client } = await connect(t, { ...direct, env: { ADDED: 'yes' } }, Transport)
      const { content } = await client.callTool({ name: 'get-env', arguments: {} })
      await client.close()
      const { SPAWN_OWNED_RUN, ...env } = JSON.parse(content[0].text)
      return env
    }
    const env = await environmentOf(StdioClientTransport)
    assert.deepEqual([env.ADDED, env.BOT_SECRET, env.PATH], ['yes', undefined, process.env.PATH])
    assert.deepEqual(env, await environmentOf(stock.StdioClientTransport))
  })

  test('behind a wrapper that has exited answers, and close() ends it with its helpers', async (t) => {
    const { witness, parameters, stands } = wrapped(t, 'leaves')
    const { client, run } = await connect(t, { ...parameters, closeMs: 10 })
    await stands()
    assert.equal(await echo(client, 'still there?'), 'Echo: still there?')
    assert.equal(run.exitCode, 0)
    await keepBusy(client)
    await client.close()
    assertGone(witness)
    assert.equal((await run.wait()).reason, 'manual-cancel')
  })

  test('behind a wrapper that stays is ended by close() with the wrapper and its helpers', async (t) => {
    const { witness, parameters, stands } = wrapped(t, 'stays')
    const { client } = await connect(t, { ...parameters, closeMs: 10 })
    await stands()
    await keepBusy(client)
    await client.close()
    assertGone(witness)
  })

  test('behind the same wrapper is left alive by the SDK’s own transport', async (t) => {
    const { parameters, stands, assertLeft } = wrapped(t, 'stays')
    const { client } = await connect(t, parameters, stock.StdioClientTransport)
    await stands()
    await keepBusy(client)
    await client.close()
    assertLeft()
  })

  test('that is killed fails its requests, calls onclose, and its helpers are gone', async (t) => {
    const witness = openWitness(t)
    const line = '"$1" "$2" & shift 2; exec "$@"'
    const command = sh(line, program('half-setsid'), witness.path, direct.command, ...direct.args)
    const { client, transport, run, closed } = await connect(t, command)
    await witness.ready(2)
    const pending = client.callTool({ name: 'trigger-long-running-operation', arguments: { duration: 600 } })
    process.kill(transport.pid, 'SIGKILL')
    await assert.rejects(pending, /Connection closed/)
    await closed
    assertGone(witness)
    const { reason, signal } = await run.wait()
    assert.deepEqual([reason, signal], ['signal', 'SIGKILL'])
  })

  test('that closes its stdout is closed, although other processes of its tree live', async (t) => {
    const witness = openWitness(t)
    const line = '"$1" "$2" >/dev/null & read -r _; exit 0'
    const it = transport(t, { ...sh(line, program('double-fork-daemon'), witness.path), closeMs: 10 })
    await it.start()
    await witness.ready(2)
    const closed = new Promise((resolve) => {
      it.onclose = resolve
    })
    await it.send(ping)
    await closed
    assertGone(witness)
  })

  test('that exceeds its timeout ends for the reason overall-timeout and calls onclose', async (t) => {
    const { closed, run } = await connect(t, { ...direct, timeoutMs: 5000 })
    await closed
    assert.equal((await run.wait()).reason, 'overall-timeout')
  })
})

describe('a bot that is SIGKILLed', options, () => {
  async function killBot(t, how) {
    const it = wrapped(t, 'stays')
    const bot = spawn(
      process.execPath,
      [...forScripts, peer('mcp-bot.mjs'), how, JSON.stringify(it.parameters)],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
        env: { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() },
      },
    )
    t.after(() => bot.kill('SIGKILL'))
    await Promise.all([it.stands(), once(bot.stdout, 'data')])
    bot.kill('SIGKILL')
    await once(bot, 'exit')
    return it
  }

  test('leaves no process of its server', async (t) => {
    const { witness } = await killBot(t, 'owned')
    await witness.gone(GONE_WITHIN_MS)
  })

  test('with the SDK’s own transport leaves the server', async (t) => {
    const { assertLeft } = await killBot(t, 'stock')
    assertLeft()
  })
})

describe('start', options, () => {
  test('rejects with the system’s error if the command does not exist, and can be retried', async (t) => {
    const it = transport(t, { command: 'no-such-server' })
    for (const times of [1, 2]) {
      await assert.rejects(it.start(), { code: 'ENOENT', message: 'spawn no-such-server ENOENT' })
      assert.deepEqual([it.calls.closed, it.calls.errors.length, it.pid], [times, times, null])
    }
    await assert.rejects(connect(t, { command: 'no-such-server' }), { code: 'ENOENT' })
  })

  test('cannot be called twice, except after close()', async (t) => {
    const it = transport(t, sh('exec cat >/dev/null'))
    const first = it.start()
    await assert.rejects(it.start(), /already started/)
    await first
    await assert.rejects(it.start(), /already started/)
    await it.close()
    const earlier = it.run
    await it.start()
    assert.notEqual(it.run, earlier)
    await it.close()
    assert.equal(it.calls.closed, 2)
  })

  test('rejects if the run is cancelled while it waits for the earlier server of its scope', async (t) => {
    const supervisor = supervise(freshRegistry())
    const scope = { supervisor, scopeKey: 'one', replaceExistingScope: true }
    const witness = openWitness(t)
    const deaf = { command: program('ignores-sigterm'), args: [witness.path], stderr: 'ignore' }
    const earlier = transport(t, { ...deaf, ...scope })
    await earlier.start()
    await witness.ready(2)
    const later = transport(t, { ...sh('exec cat >/dev/null'), ...scope })
    const started = later.start()
    started.catch(() => {})
    while (!later.run) await new Promise(setImmediate)
    later.run.cancel()
    await assert.rejects(started, /cancelled before it was started/)
    assert.equal(later.calls.closed, 1)
  })

  test('names the SDK if it is not installed', async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'without-sdk-'))
    t.after(() => removeFolder(folder))
    const installed = join(folder, 'node_modules', 'spawn-owned')
    for (const name of ['package.json', 'dist', 'native'])
      cpSync(join(root, name), join(installed, name), { recursive: true })
    const program = `import { StdioClientTransport } from 'spawn-owned/mcp'
      await new StdioClientTransport({ command: 'true' }).start().catch(({ code, message }) => console.log(code, message))`
    writeFileSync(join(folder, 'bot.mjs'), program)
    const { stdout } = await promisify(execFile)(process.execPath, [...forScripts, join(folder, 'bot.mjs')])
    assert.match(
      stdout,
      /^ERR_OWNED_PEER_MISSING spawn-owned\/mcp needs @modelcontextprotocol\/sdk.*npm install/,
    )
  })

  test('loads no module of the SDK twice if the bot uses the SDK as CommonJS', async () => {
    const program = [...forScripts, peer('mcp-bot.cjs'), JSON.stringify(direct)]
    const { stdout } = await promisify(execFile)(process.execPath, program)
    assert.deepEqual(JSON.parse(stdout), { text: 'Echo: hello', isShared: true, state: 'exited' })
  })
})

describe('close', options, () => {
  test('works before and during the start, and several times', async (t) => {
    const it = transport(t, sh('exec cat >/dev/null'))
    await it.close()
    assert.equal(it.calls.closed, 0)
    const started = it.start()
    await Promise.all([it.close(), it.close(), started])
    assert.deepEqual([it.calls.closed, it.run.state, it.pid], [1, 'exited', null])
    await it.close()
    assert.equal(it.calls.closed, 1)
  })

  test('waits closeMs for a server that does not exit, then terminates it', async (t) => {
    const witness = openWitness(t)
    const deaf = { command: program('cleans-up-on-sigterm'), args: [witness.path], stderr: 'ignore' }
    const it = transport(t, { ...sh('exec "$1" "$2" </dev/null', deaf.command, witness.path), closeMs: 200 })
    await it.start()
    await witness.ready(1)
    await it.close()
    assertGone(witness)
    const { reason, durationMs } = await it.run.wait()
    assert.equal(reason, 'manual-cancel')
    assert.ok(durationMs >= 199, `${durationMs} ms`)
  })
})

test('close rejects with the processes that it could not end, after onclose', async (t) => {
  const survivor = { pid: 4711, startToken: 't', command: 'deaf', why: 'not permitted' }
  const spawnUnendable = (...args) => {
    const run = spawnOwned(...args)
    const cancel = () => run.wait().then((exit) => ({ ...exit, survivors: [survivor] }))
    return Object.assign(run, { cancel })
  }
  const it = transport(t, { ...sh('exec cat >/dev/null'), supervisor: { spawnOwned: spawnUnendable } })
  await it.start()
  await assert.rejects(it.close(), {
    code: 'ERR_OWNED_CANCEL_FAILED',
    message: /4711 \(deaf\): not permitted/,
  })
  assert.equal(it.calls.closed, 1)
})

test('close does not wait for the stdout of a process that it could not end', async (t) => {
  const witness = openWitness(t)
  const survivor = { pid: 4711, startToken: 't', command: 'deaf', why: 'not permitted' }
  const spawnUnendable = (...args) =>
    Object.assign(spawnOwned(...args), { cancel: async () => ({ survivors: [survivor] }) })
  const server = sh('exec "$1" "$2" </dev/null', program('stays'), witness.path)
  const it = transport(t, { ...server, closeMs: 100, supervisor: { spawnOwned: spawnUnendable } })
  await it.start()
  await witness.ready(1)
  await assert.rejects(it.close(), { code: 'ERR_OWNED_CANCEL_FAILED' })
  assertAlive(witness)
  assert.deepEqual([it.calls.closed, it.pid], [1, null])
})
