// Installs the dependencies of a folder exactly as its lock file says, if they are not installed yet.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { announce, run } from './tools.mjs'

/** `what`: the dependencies in words, for the announcement. `more`: further arguments for npm. */
export function installLocked(folder, what, more = []) {
  const read = (...path) => JSON.parse(readFileSync(join(folder, ...path), 'utf8'))
  // npm writes here what it has installed.
  const installed = ['node_modules', '.package-lock.json']
  const lock = read('package-lock.json')
  if (existsSync(join(folder, ...installed)) && isInstalled(lock, read(...installed))) return
  announce(`Installing ${what}: ${rootNames(lock).join(', ')}`)
  run('npm', ['ci', '--no-audit', '--no-fund', '--ignore-scripts', ...more], { quiet: true, cwd: folder })
}

/**
 * Whether `installed` has every package of `lock`. Optional packages may be missing: they are for
 * other platforms.
 */
export function isInstalled(lock, installed) {
  return Object.entries(lock.packages).every(([path, { version, optional, devOptional }]) => {
    const found = installed.packages[path]?.version
    return path === '' || found === version || (found === undefined && (optional || devOptional))
  })
}

function rootNames({ packages: { '': own } }) {
  return Object.keys({ ...own.dependencies, ...own.devDependencies })
}
