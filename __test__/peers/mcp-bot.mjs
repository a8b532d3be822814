// A bot with a connection to a server, until it is killed. argv: 'owned' or 'stock', the parameters of the server.
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import * as stock from '@modelcontextprotocol/sdk/client/stdio.js'
import * as owned from 'spawn-owned/mcp'

const [how, parameters] = process.argv.slice(2)
const { StdioClientTransport } = how === 'owned' ? owned : stock
const client = new Client({ name: 'bot', version: '1.0.0' })
await client.connect(new StdioClientTransport(JSON.parse(parameters)))
// From here on it does not exit at the end of its stdin.
await client.callTool({ name: 'toggle-simulated-logging', arguments: {} })
process.stdout.write('connected\n')
