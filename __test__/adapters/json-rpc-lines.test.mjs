// The framing of MCP and ACP: one JSON-RPC message per line. And the environment of an MCP server.
import assert from 'node:assert/strict'
import { sources, test } from '../support/sources.mjs'

const { getDefaultEnvironment, ReadBuffer, serializeMessage } = await sources(
  'adapters/json-rpc-lines',
  'adapters/mcp-sdk',
)

const note = (text) => ({ jsonrpc: '2.0', method: 'n', params: { text } })

/** All messages that the buffer has. An error is in its place. */
function drain(buffer) {
  const results = []
  for (;;) {
    try {
      const message = buffer.readMessage()
      if (message === null) return results
      results.push(message)
    } catch (error) {
      results.push(error)
    }
  }
}

test('messages survive every division into chunks, also inside a character', () => {
  const messages = [note('a'), note('zwölf € 🦀'), note('')]
  const bytes = Buffer.from(messages.map(serializeMessage).join(''))
  for (let size = 1; size <= bytes.length; size++) {
    const [eager, late] = [new ReadBuffer(), new ReadBuffer()]
    const received = []
    for (let at = 0; at < bytes.length; at += size) {
      eager.append(bytes.subarray(at, at + size))
      late.append(bytes.subarray(at, at + size))
      received.push(...drain(eager))
    }
    assert.deepEqual([received, drain(late)], [messages, messages], `chunks of ${size} bytes`)
  }
})

test('a line may end with CR LF, and an incomplete line waits', () => {
  const buffer = new ReadBuffer()
  buffer.append(Buffer.from(`${JSON.stringify(note('a'))}\r\n{"jsonrpc"`))
  assert.deepEqual(drain(buffer), [note('a')])
  buffer.append(Buffer.from(':"2.0","method":"m"}\n'))
  assert.deepEqual(drain(buffer), [{ jsonrpc: '2.0', method: 'm' }])
})

test('a line that is not a message is an error, an empty line is skipped, and the next message is read', () => {
  const buffer = new ReadBuffer()
  buffer.append(Buffer.from(`hello\n\n[1]\nnull\n{"jsonrpc":"1.0"}\n${serializeMessage(note('a'))}`))
  const results = drain(buffer)
  assert.deepEqual(
    results.map((result) => result instanceof Error),
    [true, true, true, true, false],
  )
  assert.match(results[3].message, /Expected a JSON-RPC message on stdout, got .*1\.0/)
})

test('a message that exceeds the limit is an error, and drops what was read', () => {
  const buffer = new ReadBuffer({ maxBufferSize: 100 })
  buffer.append(Buffer.alloc(60, 'x'))
  assert.throws(() => buffer.append(Buffer.alloc(41, 'x')), /exceeded maximum size of 100 bytes/)
  // Messages that were read do not count.
  for (let times = 0; times < 5; times++) {
    buffer.append(Buffer.from(serializeMessage(note('y'.repeat(30)))))
    assert.equal(drain(buffer).length, 1)
  }
})

test('a server inherits few variables, and no exported shell function', (t) => {
  const { PATH, USER } = process.env
  t.after(() => {
    if (USER === undefined) delete process.env.USER
    else process.env.USER = USER
  })
  process.env.USER = '() { :; }'
  const env = getDefaultEnvironment()
  assert.deepEqual([env.PATH, 'USER' in env], [PATH, false])
  assert.ok(Object.keys(env).length <= 18)
})
