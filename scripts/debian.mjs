// Debian packages. Those that are missing are installed, if we may.
import { spawnSync } from 'node:child_process'
import { run, say } from './tools.mjs'

/** Makes sure that they are there, or ends this process saying for what they are needed. */
export function installPackages(forWhat, needed) {
  const missing = needed.filter((name) => !installed(name))
  if (missing.length === 0) return
  if (spawnSync('apt-get', ['--version']).status !== 0 || process.getuid() !== 0) {
    console.error(`${forWhat} need these Debian packages: ${missing.join(' ')}. Install them as root:`)
    console.error(`  apt-get install --no-install-recommends ${missing.join(' ')}`)
    process.exit(1)
  }
  say(`Installing ${missing.join(', ')}`)
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
