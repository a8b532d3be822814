// Small helpers shared by the scripts.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const isWindows = process.platform === 'win32'
export const isMacos = process.platform === 'darwin'

/** The root of the repository. */
export const root = dirname(dirname(fileURLToPath(import.meta.url)))

/**
 * Tools whose program is a script. Not esbuild: its install script replaces the script by a native
 * program. It has a JavaScript API instead.
 */
const packages = { tsc: 'typescript', biome: '@biomejs/biome' }

/** The script of a development tool, to be run with this Node. */
export function bin(tool) {
  const directory = join(root, 'node_modules', packages[tool])
  const manifest = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))
  return join(directory, typeof manifest.bin === 'string' ? manifest.bin : manifest.bin[tool])
}

/**
 * Runs a command, by default in the root folder. If it fails, this process exits with its status.
 * `quiet`: prints the output only after a failure.
 */
export function run(command, args, { quiet = false, env = process.env, cwd = root } = {}) {
  const stdio = quiet ? ['ignore', 'pipe', 'pipe'] : ['ignore', 'inherit', 'inherit']
  const options = { cwd, env, stdio, maxBuffer: 1 << 28 }
  // On Windows npm is a batch file, which needs a shell. The arguments are constant and need no
  // quotes.
  const needsShell = isWindows && command === 'npm'
  const result = needsShell
    ? spawnSync([command, ...args].join(' '), { ...options, shell: true })
    : spawnSync(command, args, options)
  if (result.error) {
    console.error(`cannot run ${command}: ${result.error.message}`)
    process.exit(1)
  }
  if (result.status !== 0) {
    if (quiet) process.stderr.write(`${result.stdout}${result.stderr}`)
    console.error(`failed: ${command} ${args.join(' ')}`)
    process.exit(result.status ?? 1)
  }
}

/** Announces what a script installs, so that a slow step has a name in the logs of CI too. */
export const announce = (text) => console.error(`· ${text}`)

/** Announces slow steps on a terminal, but not in CI. */
export function say(text) {
  if (!process.env.CI) announce(text)
}
