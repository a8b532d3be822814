#!/usr/bin/env node
// Stands in for `codex exec --experimental-json`: reads a prompt from stdin, and prints events as lines of JSON.
// It starts the tools, works, and completes the turn at SIGUSR2.
import { text } from 'node:stream/consumers'
import { startTools, stay } from './stand-in.mjs'

const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`)

await text(process.stdin)
say({ type: 'thread.started', thread_id: '00000000-0000-4000-8000-000000000000' })
say({ type: 'turn.started' })
const work = stay()
process.once('SIGUSR2', () => {
  clearInterval(work)
  say({ type: 'item.completed', item: { id: 'item_0', type: 'agent_message', text: 'done' } })
  say({ type: 'turn.completed', usage: { input_tokens: 1, cached_input_tokens: 0, output_tokens: 1 } })
})
startTools()
