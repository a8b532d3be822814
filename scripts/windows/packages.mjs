// The Debian packages that build for Windows and run what was built. Those that are missing are installed, if we may.
import { spawnSync } from 'node:child_process'
import { run, say } from '../tools.mjs'

// rustc-web and rust-web-src are one version: the standard library for Windows is built from source.
const needed = ['rustc-web', 'cargo-web', 'rust-web-src', 'gcc-mingw-w64-x86-64', 'wine64', 'wine']

export function installPackages() {
  const missing = needed.filter((name) => !installed(name))
  if (missing.length === 0) return
  if (spawnSync('apt-get', ['--version']).status !== 0 || process.getuid() !== 0) {
    console.error(`The Windows tests need these Debian packages: ${missing.join(' ')}. Install them as root:`)
    console.error(`  apt-get install --no-install-recommends ${missing.join(' ')}`)
    process.exit(1)
  }
  say(`Installing ${missing.join(', ')} (about two minutes)`)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  run('apt-get', ['update'], { quiet: true, env })
  run('apt-get', ['install', '--yes', '--no-install-recommends', ...missing], { quiet: true, env })
}

function installed(name) {
  const { stdout } = spawnSync('dpkg-query', ['-W', '-f', '$' + '{db:Status-Status}', name], {
    encoding: 'utf8',
  })
  return stdout === 'installed'
}
