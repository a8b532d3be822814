// Small helpers shared by the scripts.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const isWindows = process.platform === 'win32'
export const isMacos = process.platform === 'darwin'

/** The repository's root. */
export const root = dirname(dirname(fileURLToPath(import.meta.url)))

const packages = { tsc: 'typescript', biome: '@biomejs/biome', esbuild: 'esbuild' }

/** The script behind a development tool of ours, to be run with this very Node. */
export function bin(tool) {
  const directory = join(root, 'node_modules', packages[tool])
  const manifest = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))
  return join(directory, typeof manifest.bin === 'string' ? manifest.bin : manifest.bin[tool])
}

/** Runs a command, in the root unless told otherwise, and ends this process with its status if it fails. `quiet`: output only on failure. */
export function run(command, args, { quiet = false, env = process.env, cwd = root } = {}) {
  const stdio = quiet ? ['ignore', 'pipe', 'pipe'] : ['ignore', 'inherit', 'inherit']
  const options = { cwd, env, stdio, maxBuffer: 1 << 28 }
  // There npm is a batch file, which only a shell runs. Its arguments are ours, and need no quotes.
  const needsShell = isWindows && command === 'npm'
  const result = needsShell
    ? spawnSync([command, ...args].join(' '), { ...options, shell: true })
    : spawnSync(command, args, options)
  if (result.error) {
    console.error(`${command} cannot be run: ${result.error.message}`)
    process.exit(1)
  }
  if (result.status !== 0) {
    if (quiet) process.stderr.write(`${result.stdout}${result.stderr}`)
    console.error(`failed: ${command} ${args.join(' ')}`)
    process.exit(result.status ?? 1)
  }
}

/** What takes a while is announced to people, not to CI. */
export function say(text) {
  if (!process.env.CI) console.error(`· ${text}`)
}
