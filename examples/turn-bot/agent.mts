// node agent.mts PROMPT
//
// A stand-in for a CLI agent. It starts a tool shell in its own session, which starts a dev server.
// Then it answers and exits, and leaves both running. With "for ever" in the prompt, it never
// answers.

import { spawn } from 'node:child_process'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'

const prompt = process.argv.at(-1) ?? ''
if (prompt === '--dev-server') serve()
else await answer()

async function answer(): Promise<void> {
  console.log(`thinking about "${prompt}"`)
  const own = [process.execPath, fileURLToPath(import.meta.url), '--dev-server']
  const line = 'echo "tool shell $$"; "$@" & wait'
  const shell = spawn('sh', ['-c', line, 'sh', ...own], {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  shell.unref()
  // Wait until the dev server is ready, as an agent does.
  let said = ''
  for await (const text of shell.stdout.setEncoding('utf8')) {
    process.stdout.write(text)
    said += text
    if (said.includes('http:')) break
  }
  if (prompt.includes('for ever')) await new Promise((resolve) => setTimeout(resolve, 2 ** 31 - 1))
  console.log('the answer is 42')
}

function serve(): void {
  const server = createServer((_request, response) => response.end('hello\n'))
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address() as AddressInfo
    console.log(`dev server ${process.pid} at http://127.0.0.1:${port}`)
  })
}
