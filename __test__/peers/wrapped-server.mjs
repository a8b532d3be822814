// Like npx: starts server-everything, which talks to the client by itself. And a helper that becomes a daemon. argv: witness, helper,
// 'leaves' (at once) or 'stays' (until it is signalled, which the server does not hear of). The server is handed the witness, and its
// number is told in a file beside that.
import { spawn } from 'node:child_process'
import { openSync, writeFileSync, writeSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const [witness, helper, what] = process.argv.slice(2)
const held = openSync(witness, 'a')
const main = fileURLToPath(import.meta.resolve('@modelcontextprotocol/server-everything/dist/index.js'))
const server = spawn(process.execPath, [main, 'stdio'], { stdio: ['inherit', 'inherit', 'ignore', held] })
writeFileSync(`${witness}.pid`, String(server.pid))
writeSync(held, 'r')
spawn(helper, [witness], { stdio: 'ignore', detached: true }).unref()
if (what === 'leaves') process.exit(0)
