// spawn-owned/acp: the client of the real SDK with a stand-in agent, which uses the real SDK too.
import { fileURLToPath } from 'node:url'
import { startAgent } from 'spawn-owned/acp'
import { importPeer } from '../peers/index.mjs'
import { assertGone, freshRegistry, supervise } from '../support/bots.mjs'
import { assert, openWitness, program } from '../support/prelude.mjs'
import { forScripts, NO_SESSIONS, posixTests } from '../support/system.mjs'

const { describe, test: anyTest } = posixTests(NO_SESSIONS)
const { client, methods, PROTOCOL_VERSION } = await importPeer('@agentclientprotocol/sdk')
const standIn = fileURLToPath(new URL('../peers/acp-agent.mjs', import.meta.url))
const test = (name, body) => anyTest(name, { timeout: 45_000 }, body)

function start(t, parameters) {
  const agent = startAgent({ closeMs: 10, graceMs: 1000, stderr: 'ignore', ...parameters })
  t.after(() => agent.run.cancel({ signal: 'SIGKILL' }))
  return agent
}

/** Starts the stand-in with a helper. The witness sees both, and the double fork of the helper. */
function startStandIn(t, parameters = {}) {
  const witness = openWitness(t)
  const args = [...forScripts, standIn, witness.path, program('double-fork-daemon')]
  return { witness, agent: start(t, { command: process.execPath, args, ...parameters }) }
}

/** A client that collects the texts of the agent. */
function collector() {
  const texts = []
  const app = client({ name: 'bot' }).onNotification(methods.client.session.update, ({ params }) => {
    texts.push(params.update.content.text)
  })
  return { app, texts }
}

async function converse(connection, text) {
  await connection.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: {},
  })
  const { sessionId } = await connection.request(methods.agent.session.new, { cwd: '/', mcpServers: [] })
  const prompt = [{ type: 'text', text }]
  return await connection.request(methods.agent.session.prompt, { sessionId, prompt })
}

describe('an agent', { timeout: 120_000 }, () => {
  test('answers a prompt, is in the registry, and has no process left after close()', async (t) => {
    const supervisor = supervise(freshRegistry())
    const { witness, agent } = startStandIn(t, { supervisor, sessionId: 's', labels: { agent: 'stand-in' } })
    const { app, texts } = collector()
    const connection = app.connect(agent.stream)
    const { stopReason } = await converse(connection.agent, 'hello €')
    assert.deepEqual([stopReason, texts], ['end_turn', ['You said: hello €']])
    await witness.ready(2)
    const [record] = supervisor.list({ sessionId: 's' })
    assert.deepEqual([record.pid, record.labels], [agent.run.pid, { agent: 'stand-in' }])
    const exit = await agent.close()
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.survivors], ['manual-cancel', []])
    assert.equal(await agent.closed, await agent.run.wait())
    await connection.closed
  })

  test('is ended when the SDK closes the connection', async (t) => {
    const { witness, agent } = startStandIn(t)
    const { app } = collector()
    await app.connectWith(agent.stream, async (connection) => {
      await converse(connection, 'hello')
      await witness.ready(2)
    })
    await agent.closed
    assertGone(witness)
  })

  test('that crashes rejects its requests, and its helpers are gone', async (t) => {
    const { witness, agent } = startStandIn(t)
    const { app } = collector()
    const connection = app.connect(agent.stream)
    await converse(connection.agent, 'hello')
    await witness.ready(2)
    await assert.rejects(converse(connection.agent, 'crash'))
    const { exitCode } = await agent.closed
    assertGone(witness)
    assert.equal(exitCode, 3)
  })

  test('that is cancelled rejects its requests', async (t) => {
    const { witness, agent } = startStandIn(t)
    const { app } = collector()
    const pending = converse(app.connect(agent.stream).agent, 'never')
    pending.catch(() => {})
    await witness.ready(2)
    await agent.run.cancel()
    await assert.rejects(pending)
    assertGone(witness)
  })

  test('that does not exist fails the stream, and closed has the error', async (t) => {
    const agent = start(t, { command: 'no-such-agent' })
    await assert.rejects(agent.stream.readable.getReader().read(), { code: 'ENOENT' })
    const { reason, error } = await agent.closed
    assert.deepEqual([reason, error.code], ['spawn-error', 'ENOENT'])
    assert.equal((await agent.close()).reason, 'spawn-error')
  })

  test('that sends a message above the limit is ended', async (t) => {
    const agent = start(t, { command: 'sh', args: ['-c', 'yes | tr -d "\\n"'], maxMessageBytes: 100_000 })
    await assert.rejects(agent.stream.readable.getReader().read(), /exceeded maximum size/)
    assert.deepEqual((await agent.closed).survivors, [])
  })

  test('that writes faster than the client reads is slowed down, and loses no message', async (t) => {
    const count = 20_000
    const line = `yes '{"jsonrpc":"2.0","method":"n","params":{"text":"${'x'.repeat(100)}"}}' | head -n ${count}; echo done >&2`
    const agent = start(t, { command: 'sh', args: ['-c', line], stderr: 'pipe' })
    let isDone = false
    agent.run.stderr.once('data', () => {
      isDone = true
    })
    const reader = agent.stream.readable.getReader()
    await reader.read()
    // 2.4 MB do not fit into the pipe and the buffers of the streams.
    for (let turns = 0; turns < 100; turns++) await new Promise(setImmediate)
    assert.equal(isDone, false)
    let received = 1
    while (!(await reader.read()).done) received++
    assert.equal(received, count)
  })
})

anyTest('a misspelled parameter is an error that suggests the right one', () => {
  assert.throws(() => startAgent({ command: 'x', stdErr: 'pipe' }), /stdErr.*stderr/)
})
