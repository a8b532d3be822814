// Debian packages. Those that are missing are installed, if we may.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { run, say } from './tools.mjs'

/** Makes sure that they are there, or ends this process saying for what they are needed. */
export function installPackages(forWhat, needed) {
  const missing = needed.filter((name) => !installed(name))
  if (missing.length === 0) return
  if (!mayInstall()) {
    console.error(`${forWhat} need these Debian packages: ${missing.join(' ')}. Install them as root:`)
    console.error(`  apt-get install --no-install-recommends ${missing.join(' ')}`)
    process.exit(1)
  }
  say(`Installing ${missing.join(', ')}`)
  run('apt-get', ['update'], { quiet: true, env })
  run('apt-get', install(missing), { quiet: true, env })
}

/** The same for what one can do without: if they cannot be had, so be it. Their tests say what is missing. */
export function offerPackages(needed) {
  const missing = isDebian() ? needed.filter((name) => !installed(name)) : []
  if (missing.length === 0 || !mayInstall()) return
  say(`Installing ${missing.join(', ')}`)
  for (const args of [['update'], install(missing)]) spawnSync('apt-get', args, { stdio: 'ignore', env })
}

const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }

/** Somebody else may be installing something. */
const install = (names) => [
  ...['-o', 'DPkg::Lock::Timeout=120'],
  ...['install', '--yes', '--no-install-recommends', ...names],
]

const mayInstall = () => spawnSync('apt-get', ['--version']).status === 0 && process.getuid() === 0

/** Ubuntu's packages of the same names may be something else: its Chromium is a snap. */
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
