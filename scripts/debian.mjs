// Debian packages. Installs missing ones, if this user may do that.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { announce, run } from './tools.mjs'

/** Makes sure that the packages are installed. Otherwise prints what needs them, and exits. */
export function installPackages(forWhat, needed) {
  const missing = needed.filter((name) => !installed(name))
  if (missing.length === 0) return
  if (!mayInstall()) {
    console.error(`${forWhat} need these Debian packages: ${missing.join(' ')}. Install them as root:`)
    console.error(`  apt-get install --no-install-recommends ${missing.join(' ')}`)
    process.exit(1)
  }
  announce(`Installing the Debian packages ${missing.join(', ')}`)
  run('apt-get', ['update'], { quiet: true, env })
  run('apt-get', install(missing), { quiet: true, env })
}

/**
 * Like installPackages, for optional packages, and only in CI: a developer decides what is installed
 * on the machine. Ignores failures. Tests that need a missing package are skipped and say so.
 */
export function offerPackages(needed) {
  const missing = process.env.CI && isDebian() ? needed.filter((name) => !installed(name)) : []
  if (missing.length === 0 || !mayInstall()) return
  announce(`Installing the Debian packages ${missing.join(', ')}`)
  for (const args of [['update'], install(missing)]) spawnSync('apt-get', args, { stdio: 'ignore', env })
}

const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }

/** Waits for the lock: another process may be installing packages. */
const install = (names) => [
  ...['-o', 'DPkg::Lock::Timeout=120'],
  ...['install', '--yes', '--no-install-recommends', ...names],
]

const mayInstall = () => spawnSync('apt-get', ['--version']).status === 0 && process.getuid() === 0

/** Ubuntu's packages with the same names may be something else: its Chromium is a snap. */
function isDebian() {
  try {
    return /^ID=debian$/m.test(readFileSync('/etc/os-release', 'utf8'))
  } catch {
    return false
  }
}

function installed(name) {
  const { stdout } = spawnSync('dpkg-query', ['-W', '-f', '$' + '{db:Status-Status}', name], {
    encoding: 'utf8',
  })
  return stdout === 'installed'
}
