// Makes a fresh clone ready: installs what is missing, builds what is not up to date. Quiet unless something fails.
import { spawnSync } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { root, run, say } from './tools.mjs'

const installed = join(root, 'node_modules', '.package-lock.json')
const lock = join(root, 'package-lock.json')

if (!existsSync(installed) || statSync(installed).mtimeMs < statSync(lock).mtimeMs) {
  say('Installing development dependencies')
  // Not `npm ci`: it insists on entries for every other platform's optional packages, which a lock made behind a partial
  // mirror does not have. This installs what the lock says and leaves it alone.
  run('npm', ['install', '--no-save', '--no-audit', '--no-fund', '--ignore-scripts'], { quiet: true })
}
if (spawnSync('cargo', ['--version']).status !== 0) {
  console.error(
    'Rust is needed to build spawn-owned from source. Install Rust 1.89 or newer (https://rustup.rs).',
  )
  process.exit(1)
}
say('Building (a first build takes a minute or two)')
run(process.execPath, [join(root, 'scripts', 'build.mjs'), '--quiet'])
