// A bot with one run: @playwright/mcp. It makes the server open a page in the browser argv[2], and
// prints `browsing` when the page is open. At the end of its stdin it cancels the run, and prints how
// the run ended.
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { ReadBuffer, serializeMessage } from '@modelcontextprotocol/sdk/shared/stdio.js'
import { spawnOwned } from 'spawn-owned'

const require = createRequire(import.meta.url)
const server = join(dirname(require.resolve('@playwright/mcp/package.json')), 'cli.js')
const args = [server, '--headless', '--no-sandbox', '--isolated', `--executable-path=${process.argv[2]}`]
const run = spawnOwned(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })

/** MCP over a run's stdin and stdout. */
const transport = {
  async start() {
    const read = new ReadBuffer()
    run.stdout.on('data', (bytes) => {
      read.append(bytes)
      for (let message = read.readMessage(); message; message = read.readMessage()) this.onmessage(message)
    })
    run.on('close', () => this.onclose?.())
  },
  async send(message) {
    run.stdin.write(serializeMessage(message))
  },
  async close() {
    await run.cancel()
  },
}

const client = new Client({ name: 'bot', version: '1' })
await client.connect(transport)
const { isError, content } = await client.callTool({
  name: 'browser_navigate',
  arguments: { url: 'data:text/html,<title>owned</title>' },
})
if (isError) throw new Error(JSON.stringify(content))
console.log('browsing')
await once(process.stdin.resume(), 'end')
console.log(JSON.stringify(await run.cancel()))
