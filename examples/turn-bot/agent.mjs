// node agent.mjs PROMPT
//
// A stand-in for a CLI agent: thinks aloud, has a tool shell in a session of its own start a dev server, and answers. It tidies nothing up.
// A prompt with "for ever" in it is thought about for ever.

import { spawn } from 'node:child_process'
import { createServer } from 'node:http'
import { fileURLToPath } from 'node:url'

const prompt = process.argv.at(-1)
if (prompt === '--dev-server') serve()
else await answer()

async function answer() {
  console.log(`thinking about "${prompt}"`)
  const own = [process.execPath, fileURLToPath(import.meta.url), '--dev-server']
  const line = 'echo "tool shell $$"; "$@" & wait'
  const shell = spawn('sh', ['-c', line, 'sh', ...own], {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  shell.unref()
  // Until the dev server is up, as an agent would.
  let said = ''
  for await (const text of shell.stdout.setEncoding('utf8')) {
    process.stdout.write(text)
    said += text
    if (said.includes('http:')) break
  }
  if (prompt.includes('for ever')) await new Promise((resolve) => setTimeout(resolve, 2 ** 31 - 1))
  console.log('the answer is 42')
}

function serve() {
  const server = createServer((_request, response) => response.end('hello\n'))
  server.listen(0, '127.0.0.1', () => {
    console.log(`dev server ${process.pid} at http://127.0.0.1:${server.address().port}`)
  })
}
