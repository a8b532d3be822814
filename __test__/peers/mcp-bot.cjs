// A client of the MCP SDK in CommonJS. argv: the parameters of the server. Prints the answers of the
// server, and which module formats of the SDK were loaded.
const { Client } = require('@modelcontextprotocol/sdk/client/index.js')
const { StdioClientTransport } = require('spawn-owned/mcp')

async function main() {
  const client = new Client({ name: 'bot', version: '1.0.0' })
  const transport = new StdioClientTransport(JSON.parse(process.argv[2]))
  await client.connect(transport)
  const { content } = await client.callTool({ name: 'echo', arguments: { message: 'hello' } })
  await client.close()
  const framing = require.resolve('@modelcontextprotocol/sdk/shared/stdio.js')
  const isShared = framing in require.cache
  console.log(JSON.stringify({ text: content[0].text, isShared, state: transport.run.state }))
}

main()
