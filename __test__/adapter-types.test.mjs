// The types of the adapters, against those of the packages they are made for.
import { test } from 'node:test'
import { NO_LINKS, posixOnly } from './support/system.mjs'
import { assertCompiles } from './support/types.mjs'

const options = posixOnly(NO_LINKS, { timeout: 120_000 })

test('spawn-owned/claude-agent-sdk is what its SDK wants', options, (t) => {
  const body = `
const stop = new AbortController()
const spawner = createSpawner({
  sessionId: 's', labels: { agent: 'claude' }, timeoutMs: 1, supervisor: createSupervisor(), signal: stop.signal,
  stderr: (text) => console.log(text.trim()),
  onRun: (run) => run.wait().then(({ reason }) => console.log(reason)),
})
export const hooks: NonNullable<Options['spawnClaudeCodeProcess']>[] = [spawnClaudeCodeProcess, spawner]
export const messages = query({ prompt: 'p', options: { abortController: stop, spawnClaudeCodeProcess: spawner } })
export const agent: SpawnedProcess = spawner({ command: 'claude', args: [], env: {}, signal: stop.signal })
// @ts-expect-error what the agent has started ends with it
createSpawner({ onLeaderExit: 'keep' })
// @ts-expect-error the SDK says where
createSpawner({ cwd: '/' })
// @ts-expect-error not a process
createSpawner({ onRun: (run: string) => run })
`
  const theirs = "import { type Options, query, type SpawnedProcess } from '@anthropic-ai/claude-agent-sdk'"
  const esm = `${theirs}
import { createSupervisor } from 'spawn-owned'
import { createSpawner, spawnClaudeCodeProcess } from 'spawn-owned/claude-agent-sdk'
${body}`
  const cjs = `${theirs}
import { createSupervisor } from 'spawn-owned'
import adapter = require('spawn-owned/claude-agent-sdk')
const { createSpawner, spawnClaudeCodeProcess } = adapter
${body}`
  const uses = ['@anthropic-ai/claude-agent-sdk', '@anthropic-ai/sdk', '@modelcontextprotocol/sdk', 'zod']
  assertCompiles(t, { 'esm.mts': esm, 'cjs.cts': cjs }, uses)
})

test('spawn-owned/mcp is a transport, and takes what the SDK’s own takes', options, (t) => {
  const body = `
export const theirs: Theirs = { command: 'npx', args: ['x'], env: { A: 'b' }, stderr: 'pipe', cwd: '/', maxBufferSize: 1 }
const ours: StdioServerParameters = { ...theirs, sessionId: 's', closeMs: 1, supervisor: createSupervisor(), onLeaderExit: 'kill' }
// Whatever the one may be given may be given to the other.
type Taken = Required<Theirs> extends Pick<Required<StdioServerParameters>, keyof Theirs> ? true : never
export const taken: Taken = true
const transport = new StdioClientTransport(ours)
export const shape: Transport = transport
export const client = new Client({ name: 'bot', version: '1' })
export async function main(): Promise<void> {
  await client.connect(transport)
  transport.onmessage = (message) => console.log('method' in message && message.method.trim())
  await transport.send({ jsonrpc: '2.0', id: 1, method: 'ping' })
  console.log(transport.pid?.toFixed(), (await transport.run?.wait())?.reason, transport.stderr?.listenerCount('data'))
  // @ts-expect-error not a message
  await transport.send({ method: 'ping' })
  // @ts-expect-error not an option: its pipes would lead nowhere
  new StdioClientTransport({ command: 'x', onOwnerExit: 'keep' })
}
`
  const types = `import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import type { StdioServerParameters as Theirs } from '@modelcontextprotocol/sdk/client/stdio.js'
import { createSupervisor } from 'spawn-owned'`
  const esm = `${types}
import { StdioClientTransport, type StdioServerParameters } from 'spawn-owned/mcp'
${body}`
  const cjs = `${types}
import mcp = require('spawn-owned/mcp')
type StdioServerParameters = mcp.StdioServerParameters
const { StdioClientTransport } = mcp
${body}`
  assertCompiles(t, { 'esm.mts': esm, 'cjs.cts': cjs }, ['@modelcontextprotocol/sdk', 'zod'])
})
