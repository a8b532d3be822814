// The types of the adapters, checked against the types of the SDKs.
import { test } from '../support/prelude.mjs'
import { NO_LINKS, posixOnly } from '../support/system.mjs'
import { assertCompiles } from '../support/types.mjs'

const options = posixOnly(NO_LINKS, { timeout: 120_000 })

test('the types of spawn-owned/claude-agent-sdk match those of the SDK', options, (t) => {
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
// @ts-expect-error not an option: the agent's processes end with the agent
createSpawner({ onLeaderExit: 'keep' })
// @ts-expect-error not an option: the SDK sets the directory
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

test('the stream of spawn-owned/acp has the type of the SDK', options, (t) => {
  const source = `import { client, methods, PROTOCOL_VERSION, type Stream } from '@agentclientprotocol/sdk'
import { createSupervisor } from 'spawn-owned'
import { type AgentConnection, startAgent } from 'spawn-owned/acp'
const agent: AgentConnection = startAgent({ command: 'x', args: ['y'], sessionId: 's', closeMs: 1, supervisor: createSupervisor() })
export const stream: Stream = agent.stream
export const connection = client({ name: 'bot' }).connect(agent.stream)
export async function main(): Promise<string> {
  const protocolVersion = PROTOCOL_VERSION
  await connection.agent.request(methods.agent.initialize, { protocolVersion, clientCapabilities: {} })
  await using other = startAgent({ command: 'x', onLeaderExit: 'kill', stderr: 'ignore' })
  return (await other.closed).reason + (await agent.close()).message
}
// @ts-expect-error not an option: without the bot no process reads its pipes
startAgent({ command: 'x', onOwnerExit: 'keep' })
`
  assertCompiles(t, { 'esm.mts': source }, ['@agentclientprotocol/sdk', 'zod'])
})

test('the transport of spawn-owned/mcp has the SDK’s type and takes the same parameters', options, (t) => {
  const body = `
export const theirs: Theirs = { command: 'npx', args: ['x'], env: { A: 'b' }, stderr: 'pipe', cwd: '/', maxBufferSize: 1 }
const ours: StdioServerParameters = { ...theirs, sessionId: 's', closeMs: 1, supervisor: createSupervisor(), onLeaderExit: 'kill' }
// Every parameter of the SDK's transport is a parameter of ours.
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
  // @ts-expect-error not an option: without the bot no process reads its pipes
  new StdioClientTransport({ command: 'x', onOwnerExit: 'keep' })
}
`
  const version1 = `import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import type { StdioServerParameters as Theirs } from '@modelcontextprotocol/sdk/client/stdio.js'
import { createSupervisor } from 'spawn-owned'`
  const version2 = `import { Client, type Transport } from '@modelcontextprotocol/client'
import type { StdioServerParameters as Theirs } from '@modelcontextprotocol/client/stdio'
import { createSupervisor } from 'spawn-owned'`
  const esm = (theirs) => `${theirs}
import { StdioClientTransport, type StdioServerParameters } from 'spawn-owned/mcp'
${body}`
  const cjs = (theirs) => `${theirs}
import mcp = require('spawn-owned/mcp')
type StdioServerParameters = mcp.StdioServerParameters
const { StdioClientTransport } = mcp
${body}`
  const uses = ['@modelcontextprotocol/sdk', 'zod']
  assertCompiles(t, { 'esm.mts': esm(version1), 'cjs.cts': cjs(version1) }, uses)
  // A project has only one version installed.
  const uses2 = ['@modelcontextprotocol/client', '@modelcontextprotocol/core', 'zod']
  assertCompiles(t, { 'esm.mts': esm(version2), 'cjs.cts': cjs(version2) }, uses2)
})
