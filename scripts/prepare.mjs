// Prepares a fresh clone: installs what is missing and builds what is outdated. Quiet unless
// something fails.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { installLocked } from './dependencies.mjs'
import { root, run, say } from './tools.mjs'

installLocked(root, 'development dependencies')
if (spawnSync('cargo', ['--version']).status !== 0) {
  console.error(
    'Rust is needed to build spawn-owned from source. Install Rust 1.89 or newer (https://rustup.rs).',
  )
  process.exit(1)
}
say('Building (a first build takes a minute or two)')
run(process.execPath, [join(root, 'scripts', 'build.mjs'), '--quiet'])
