// spawn-owned/mcp on Windows, where npx is a batch file, which only cmd.exe can run.
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { importPeer } from '../peers/index.mjs'
import { assert, test } from '../support/prelude.mjs'
import { isWindows, removeFolder, windowsOnly } from '../support/system.mjs'

// Imported through the link in the peers folder, because Wine does not resolve links to one path.
const { StdioClientTransport } = isWindows ? await importPeer('spawn-owned/mcp') : {}
const stock = isWindows ? await importPeer('@modelcontextprotocol/sdk/client/stdio.js') : {}

const options = windowsOnly({ timeout: 120_000 })

/** A batch file that starts a server, which answers a message with its arguments. */
function batchFile(t, name) {
  const folder = mkdtempSync(join(tmpdir(), 'batch-'))
  t.after(() => removeFolder(folder))
  const server = join(folder, 'server.js')
  const answer =
    "JSON.stringify({ jsonrpc: '2.0', method: 'received', params: { args: process.argv.slice(2) } })"
  writeFileSync(server, `process.stdin.on('data', () => console.log(${answer}))`)
  writeFileSync(join(folder, name), `@"${process.execPath}" "${server}" %*\r\n`)
  return { command: join(folder, name), folder }
}

async function argumentsReceivedBy(Transport, parameters) {
  const transport = new Transport({ stderr: 'ignore', ...parameters })
  const received = new Promise((resolve, reject) => {
    transport.onmessage = ({ params }) => resolve(params.args)
    transport.onclose = () => reject(new Error('the server has gone without an answer'))
  })
  await transport.start()
  await transport.send({ jsonrpc: '2.0', method: 'ask' })
  const args = await received
  await transport.close()
  return args
}

test('a batch file gets the same arguments as from the SDK’s own transport', options, async (t) => {
  const { command } = batchFile(t, 'server.cmd')
  const args = ['plain', 'a b', 'x&y', 'C:\\dir\\']
  const theirs = await argumentsReceivedBy(stock.StdioClientTransport, { command, args })
  assert.deepEqual(await argumentsReceivedBy(StdioClientTransport, { command, args }), theirs)
  assert.deepEqual(theirs, args)
})

test('a batch file is found by its name without extension, like npx', options, async (t) => {
  const { folder } = batchFile(t, 'served.cmd')
  const env = { PATH: [folder, process.env.PATH].join(delimiter) }
  assert.deepEqual(await argumentsReceivedBy(StdioClientTransport, { command: 'served', args: ['x'], env }), [
    'x',
  ])
})

test('a command that does not exist rejects with ENOENT', options, async () => {
  const transport = new StdioClientTransport({ command: 'no-such-server', stderr: 'ignore' })
  await assert.rejects(transport.start(), { code: 'ENOENT' })
})
