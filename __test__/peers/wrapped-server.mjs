// Like npx: starts server-everything, which inherits stdin and stdout, and a helper that becomes a
// daemon. argv: witness, helper, and 'leaves' (it exits at once) or 'stays' (it exits when it gets a
// signal, which it does not pass to the server). The server inherits the witness. Its PID is in a file
// beside the witness.
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
