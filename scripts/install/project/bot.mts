import { createRequire } from 'node:module'
import { list, type OwnedProcess, type RunExit, spawnOwned } from 'spawn-owned'
import { exec, spawn } from 'spawn-owned/child_process'
import { createSpawner } from 'spawn-owned/claude-agent-sdk'
import * as pty from 'spawn-owned/node-pty'

const loaded = createRequire(import.meta.url).cache
/**
 * What a bot does, as a new user would write it. The part above differs with the module format
 * (project.mjs).
 */
async function main(): Promise<void> {
  const child = `printf r >&9; echo up; exec sleep 1000`
  const script = `exec 9>"$WITNESS"; sh -c '${child}' & sh -c '${child}' & wait`
  const tree: OwnedProcess = spawnOwned('sh', ['-c', script], {
    sessionId: 'install',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let said = ''
  for await (const chunk of tree.stdout as AsyncIterable<Buffer>) {
    said += chunk.toString()
    if (said === 'up\nup\n') break
  }
  const known = list({ sessionId: 'install' }).map(({ pid }) => pid === tree.pid)
  const exit: RunExit = await tree.cancel()

  const replaced = spawn('sh', ['-c', 'exit 7'])
  const { exitCode } = await replaced.wait()
  const heard = await new Promise<string>((resolve) => exec('echo heard', (_, stdout) => resolve(stdout)))

  const terminal = pty.spawn('sh', ['-c', 'test -t 0 && exit 5'], { cols: 80, rows: 24 })
  const onTerminal = await new Promise<number>((resolve) => terminal.onExit((end) => resolve(end.exitCode)))

  const { signal } = new AbortController()
  const agent = createSpawner()({ command: 'sh', args: ['-c', 'exit 3'], env: process.env, signal })
  const ofAgent = await new Promise<number | null>((resolve) => agent.on('exit', resolve))

  // The compiler does not resolve this name: its types need the SDK, which this project does not
  // have.
  const mcp: string = 'spawn-owned/mcp'
  const { StdioClientTransport } = await import(mcp)
  const withoutSdk = await new StdioClientTransport({ command: 'true' })
    .start()
    .catch(({ code }: NodeJS.ErrnoException) => code)

  const addon = Object.keys(loaded).find((file) => file.endsWith('.node'))
  const { reason, survivors } = exit
  console.log(
    JSON.stringify({
      ...{ known, reason, survivors, exitCode, heard, onTerminal, ofAgent, withoutSdk, addon },
      uid: process.getuid?.(),
    }),
  )
}

main().catch((error: unknown) => {
  console.error(error)
  process.exitCode = 1
})
