// Messages between an MCP client and a server that is a run: send, and the output of the server.
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { ping, sh, transport } from '../support/mcp.mjs'
import { assert } from '../support/prelude.mjs'
import { NO_SESSIONS, posixTests } from '../support/system.mjs'

const { describe, test: anyTest } = posixTests(NO_SESSIONS)
const options = { timeout: 300_000 }

/** Shorter than the time limit after which the fixtures end themselves. */
const test = (name, body) => anyTest(name, { timeout: 45_000 }, body)

describe('send', options, () => {
  const large = { ...ping, params: { text: 'x'.repeat(4 << 20) } }

  test('waits for a server that does not read', async (t) => {
    const line = 'trap "exec cat >/dev/null" USR1; echo up >&2; while :; do sleep 0.01; done'
    const it = transport(t, { ...sh(line), stderr: 'pipe' })
    await Promise.all([once(it.stderr, 'data'), it.start()])
    let isSent = false
    const sent = it.send(large).then(() => {
      isSent = true
    })
    assert.ok(it.run.stdin.writableLength > 0)
    assert.equal(isSent, false)
    it.run.kill('SIGUSR1')
    await sent
    assert.equal(it.run.stdin.writableLength, 0)
    await it.close()
  })

  test('rejects if the server exits before it has read the message', async (t) => {
    const it = transport(t, sh('exec sleep 1000'))
    await it.start()
    const sent = it.send(large)
    it.run.kill('SIGKILL')
    await assert.rejects(sent)
    await it.close()
    assert.equal(it.calls.closed, 1)
  })

  test('rejects before the start and after close()', async (t) => {
    const it = transport(t, sh('exec cat >/dev/null'))
    await assert.rejects(it.send(ping), /Not connected/)
    await it.start()
    const closed = it.close()
    await assert.rejects(it.send(ping), /Not connected/)
    await closed
    await assert.rejects(it.send(ping), /Not connected/)
  })
})

describe('the output of a server', options, () => {
  test('is delivered completely before onclose', async (t) => {
    const count = 20_000
    const it = transport(t, sh(`yes '{"jsonrpc":"2.0","method":"n"}' | head -n ${count}`))
    const received = new Promise((resolve) => {
      it.onclose = () => resolve(it.calls.messages.length)
    })
    await it.start()
    assert.equal(await received, count)
    assert.deepEqual(it.calls.errors, [])
  })

  test('that is not a message causes an error, and the next message is delivered', async (t) => {
    const it = transport(t, sh(`echo hello; echo '{"jsonrpc":"2.0","method":"n"}'`))
    const closed = new Promise((resolve) => {
      it.onclose = resolve
    })
    await it.start()
    await closed
    assert.deepEqual([it.calls.errors.length, it.calls.messages.length], [1, 1])
  })

  test('causes an error and ends the server if one message is too long', async (t) => {
    const it = transport(t, { ...sh('yes | tr -d "\\n"'), maxBufferSize: 100_000, closeMs: 10 })
    const closed = new Promise((resolve) => {
      it.onclose = resolve
    })
    await it.start()
    await closed
    assert.match(it.calls.errors[0].message, /exceeded maximum size/)
    assert.equal(it.run.state, 'exited')
  })

  test('on stderr can be read from its start', async (t) => {
    const it = transport(t, { ...sh('echo early >&2'), stderr: 'pipe' })
    const said = text(it.stderr)
    await it.start()
    assert.equal(await said, 'early\n')
    await it.close()
    // The first stream has ended with its server, so this is a new one.
    await it.start()
    assert.equal(await text(it.stderr), 'early\n')
    assert.equal(transport(t, sh('')).stderr, null)
  })
})
