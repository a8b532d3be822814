// A stand-in for the claude executable. It uses the SDK's protocol (lines of JSON in both directions)
// and knows these prompts:
//   hello   answers
//   tools   starts the commands in STAND_IN_TOOLS, as Claude Code does, and answers
//   work    the same, but never answers; an interrupt ends the turn
//   crash   exits with 3
// Like Claude Code it exits at the end of its stdin, unless STAND_IN_STAYS is set.
import { createInterface } from 'node:readline'
import { startTools, stay } from './stand-in.mjs'

const session_id = '00000000-0000-4000-8000-000000000000'
let isWorking = false

if (process.env.STAND_IN_STAYS) stay()

const say = (message) => process.stdout.write(`${JSON.stringify({ session_id, ...message })}\n`)
const answer = (request_id, response = {}) =>
  say({ type: 'control_response', response: { subtype: 'success', request_id, response } })

function reply(text) {
  const message = { id: 'm', type: 'message', role: 'assistant', content: [{ type: 'text', text }] }
  say({ type: 'assistant', message: { ...message, model: 'stand-in', usage: {} }, parent_tool_use_id: null })
}

function finish(result, subtype = 'success') {
  isWorking = false
  const figures = { duration_ms: 1, duration_api_ms: 0, num_turns: 1, total_cost_usd: 0, usage: {} }
  say({ type: 'result', subtype, is_error: subtype !== 'success', result, errors: [], ...figures })
}

const prompts = {
  hello() {
    reply('hello')
    finish('hello')
  },
  tools() {
    startTools()
    reply('tools run')
    finish('tools run')
  },
  work() {
    startTools()
    isWorking = true
    reply('working')
  },
  crash() {
    process.exit(3)
  },
}

const messages = {
  control_request({ request_id, request }) {
    answer(request_id, request.subtype === 'initialize' ? { commands: [], models: [], account: {} } : {})
    if (request.subtype === 'interrupt' && isWorking) finish('', 'error_during_execution')
  },
  user({ message: { content } }) {
    say({
      type: 'system',
      subtype: 'init',
      cwd: process.cwd(),
      tools: [],
      mcp_servers: [],
      model: 'stand-in',
    })
    prompts[typeof content === 'string' ? content : content[0].text]()
  },
}

process.stderr.write('a word of the stand-in’s\n')
for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line)
  messages[message.type]?.(message)
}
