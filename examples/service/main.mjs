// node examples/service/main.mjs
//
// Five hooks at once, and one worker for all of them. It outlives them, is killed, is started again by the next hook, and is stopped by name.

import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { createSupervisor } from 'spawn-owned'

const folder = mkdtempSync(join(tmpdir(), 'spawn-owned-service-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 10 }))
const registryPath = join(folder, 'process-registry.json')
const supervisor = createSupervisor({ registryPath })
const port = await freePort()

const hook = async () => {
  const args = [fileURLToPath(new URL('hook.mjs', import.meta.url)), String(port)]
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: registryPath }
  process.stdout.write((await promisify(execFile)(process.execPath, args, { env })).stdout)
}

try {
  console.log('Five hooks at once:')
  await Promise.all(Array.from({ length: 5 }, hook))
  const [{ pid }] = supervisor.list()
  console.log(`All of them are gone. The worker is killed: ${process.kill(pid, 'SIGKILL')}`)
  await hook()
} finally {
  const { outcome } = await supervisor.stopService('counter')
  console.log(`Stopped by its name: ${outcome}. Left in the registry: ${supervisor.list().length}`)
}

async function freePort() {
  const server = createServer()
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}
