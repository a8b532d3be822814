// node examples/service/main.mts
//
// Five hooks start at once and share one worker, which outlives them. The worker is killed, and the
// next hook starts it again. Finally the worker is stopped by its name.

import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { createSupervisor } from 'spawn-owned'

const folder = mkdtempSync(join(tmpdir(), 'spawn-owned-service-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 10 }))
const registryPath = join(folder, 'process-registry.json')
const supervisor = createSupervisor({ registryPath })
const port = await freePort()

const hook = async (): Promise<void> => {
  // The hook has the extension of this file: .mts, or .mjs after a build.
  const args = [fileURLToPath(new URL(`hook${extname(import.meta.url)}`, import.meta.url)), String(port)]
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: registryPath }
  process.stdout.write((await promisify(execFile)(process.execPath, args, { env })).stdout)
}

try {
  console.log('Five hooks at once:')
  await Promise.all(Array.from({ length: 5 }, hook))
  for (const { pid } of supervisor.list())
    console.log(`All hooks have exited. Killed worker ${pid}: ${process.kill(pid, 'SIGKILL')}`)
  await hook()
} finally {
  const { outcome } = await supervisor.stopService('counter')
  console.log(
    `Stopped the worker by its name: ${outcome}. Entries left in the registry: ${supervisor.list().length}`,
  )
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}
