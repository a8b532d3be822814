// The command line, as a script uses it. (openTerminal with `cli` uses it as a person at a
// terminal.)
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** The program that npm installs as `spawn-owned`. */
export const cli = fileURLToPath(new URL('../../dist/cli.js', import.meta.url))

/** Runs it to its end, on this registry. `started` gets the process. */
export async function spawnOwnedCli(registryPath, args, { env = {}, input, started, ...options } = {}) {
  const child = spawn(process.execPath, [cli, ...args], {
    ...options,
    env: { ...process.env, NO_COLOR: '', SPAWN_OWNED_REGISTRY: registryPath, ...env },
  })
  started?.(child)
  const said = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'])
    child[name].setEncoding('utf8').on('data', (text) => {
      said[name] += text
    })
  child.stdin.end(input)
  const code = await new Promise((resolve, reject) => child.on('error', reject).on('close', resolve))
  return {
    code,
    ...said,
    json: () => JSON.parse(said.stdout),
    lines: () => said.stdout.trimEnd().split('\n'),
  }
}
