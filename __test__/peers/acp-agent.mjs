// A stand-in for an agent of the Agent Client Protocol, with the real SDK. argv: witness, helper. A
// prompt starts the helper, which becomes a daemon. The answer is the text of the prompt. The prompt
// `crash` makes it exit with 3, and `never` gets no answer. It ignores the end of its stdin.
import { spawn } from 'node:child_process'
import { openSync, writeSync } from 'node:fs'
import { Readable, Writable } from 'node:stream'
import { agent, methods, ndJsonStream, PROTOCOL_VERSION } from '@agentclientprotocol/sdk'

const [witness, helper] = process.argv.slice(2)
if (witness) writeSync(openSync(witness, 'a'), 'r')
setInterval(() => {}, 2 ** 30)

async function prompt({ params, client }) {
  const text = params.prompt[0].text
  if (text === 'crash') process.exit(3)
  if (helper) spawn(helper, [witness], { stdio: 'ignore', detached: true }).unref()
  if (text === 'never') await new Promise(() => {})
  const update = {
    sessionUpdate: 'agent_message_chunk',
    content: { type: 'text', text: `You said: ${text}` },
  }
  await client.notify(methods.client.session.update, { sessionId: params.sessionId, update })
  return { stopReason: 'end_turn' }
}

// Not a message: a client answers with an error and goes on.
console.log('starting up')
agent({ name: 'stand-in' })
  .onRequest(methods.agent.initialize, () => ({ protocolVersion: PROTOCOL_VERSION, agentCapabilities: {} }))
  .onRequest(methods.agent.session.new, () => ({ sessionId: 'session-1' }))
  .onRequest(methods.agent.session.prompt, prompt)
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)))
