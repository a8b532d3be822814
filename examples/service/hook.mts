// A short-lived process, such as a hook of an agent. It starts the worker if necessary, uses it,
// and exits.
import { extname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ensureService } from 'spawn-owned'

const port = Number(process.argv[2])
// The worker has the extension of this file: .mts, or .mjs after a build.
const worker = new URL(`worker${extname(import.meta.url)}`, import.meta.url)
const { pid, started } = await ensureService({
  name: 'counter',
  command: process.execPath,
  args: [fileURLToPath(worker), String(port)],
  port,
})
const answer = await (await fetch(`http://127.0.0.1:${port}`)).text()
console.log(`hook ${process.pid}: ${started ? 'started' : 'found'} worker ${pid}, ${answer.trim()}`)
