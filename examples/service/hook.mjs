// A short-lived process, such as a hook of an agent: it needs the worker, starts it if need be, and is gone.
import { fileURLToPath } from 'node:url'
import { ensureService } from 'spawn-owned'

const port = Number(process.argv[2])
const { pid, started } = await ensureService({
  name: 'counter',
  command: process.execPath,
  args: [fileURLToPath(new URL('worker.mjs', import.meta.url)), String(port)],
  port,
})
const answer = await (await fetch(`http://127.0.0.1:${port}`)).text()
console.log(`hook ${process.pid}: ${started ? 'started' : 'found'} worker ${pid}, ${answer.trim()}`)
