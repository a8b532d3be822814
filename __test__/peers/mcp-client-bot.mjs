// A client of version 2 of the MCP SDK. argv: 'default' or 'auto' (how the client learns the version
// of the protocol), the parameters of the server. Prints the answers of the server, and how many
// servers were started.
import { Client } from '@modelcontextprotocol/client'
import { createSupervisor } from 'spawn-owned'
import { StdioClientTransport } from 'spawn-owned/mcp'

const [mode, parameters] = process.argv.slice(2)
const supervisor = createSupervisor()
const runs = []
const spawnOwned = (...args) => {
  const run = supervisor.spawnOwned(...args)
  runs.push(run)
  return run
}
const options = mode === 'auto' ? { versionNegotiation: { mode } } : {}
const client = new Client({ name: 'bot', version: '1.0.0' }, options)
const transport = new StdioClientTransport({ ...JSON.parse(parameters), supervisor: { spawnOwned } })
await client.connect(transport)
const { tools } = await client.listTools()
const { content } = await client.callTool({ name: 'echo', arguments: { message: 'hello' } })
// Only the server of this connection runs. The one for the negotiation is gone.
const live = supervisor.list().map(({ pid }) => pid)
const isOnlyOne = live.length === 1 && live[0] === transport.pid
await client.close()
const states = runs.map(({ state }) => state)
const entries = supervisor.list().length
console.log(JSON.stringify({ tools: tools.length > 5, text: content[0].text, isOnlyOne, states, entries }))
