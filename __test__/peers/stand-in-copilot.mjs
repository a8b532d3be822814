#!/usr/bin/env node
// Stands in for the Copilot CLI with `--headless --stdio`: JSON-RPC with headers, as in language servers. A prompt starts the tools.
// It exits when the SDK requests that, or when its stdin ends.
import { createMessageConnection, StreamMessageReader, StreamMessageWriter } from 'vscode-jsonrpc/node.js'
import { startTools } from './stand-in.mjs'

const PROTOCOL_VERSION = 3

const answers = {
  connect: () => ({ protocolVersion: PROTOCOL_VERSION }),
  'session.create': ({ sessionId }) => ({ sessionId }),
  'session.send'() {
    startTools()
    return { messageId: 'm' }
  },
  'runtime.shutdown'() {
    if (!process.env.STAND_IN_STAYS) setImmediate(() => process.exit(0))
    return {}
  },
}

const connection = createMessageConnection(
  new StreamMessageReader(process.stdin),
  new StreamMessageWriter(process.stdout),
)
connection.onRequest((method, params) => answers[method]?.(params) ?? {})
connection.onClose(() => process.exit(0))
connection.listen()
