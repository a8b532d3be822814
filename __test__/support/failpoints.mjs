// An addon with failpoints, which releases do not have. The first build takes a while.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isWindows, isWine } from './system.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const target = join(root, 'target', 'failpoints')

/** Where a build on another system leaves it. */
const forWine = join(root, 'target', 'windows', 'failpoints', 'spawn-owned.node')

/** Why there is no such addon, or false. Wine cannot build it. */
export const withoutFailpoints =
  isWine && !existsSync(forWine) && 'no addon with failpoints was built for Windows'

/** Builds it, and copies it to `file`. */
export function buildFailpointsAddon(file) {
  if (isWine) return copyFileSync(forWine, file)
  const build = ['build', '--quiet', '--release', '--lib', '--features', 'failpoints', '--target-dir', target]
  // The release profile, because of its panic strategy; without optimization.
  const quick = { LTO: 'off', CODEGEN_UNITS: '16', OPT_LEVEL: '0' }
  const profile = Object.entries(quick).map(([name, value]) => [`CARGO_PROFILE_RELEASE_${name}`, value])
  const env = { ...process.env, ...Object.fromEntries(profile) }
  const built = spawnSync('cargo', build, { cwd: root, env, encoding: 'utf8' })
  assert.equal(built.status, 0, built.stderr)
  copyFileSync(join(target, 'release', isWindows ? 'spawn_owned.dll' : 'libspawn_owned.so'), file)
}

/** Installs the package with that addon in `directory`. Scripts there import it by its name. */
export function installWithFailpoints(directory) {
  const native = join(directory, 'native')
  mkdirSync(native, { recursive: true })
  cpSync(join(root, 'dist'), join(directory, 'dist'), { recursive: true })
  copyFileSync(join(root, 'package.json'), join(directory, 'package.json'))
  if (isWindows) {
    const folder = join(native, `win32-${process.arch}`)
    mkdirSync(folder)
    const helper = 'spawn-owned-keeper.exe'
    copyFileSync(join(root, 'native', `win32-${process.arch}`, helper), join(folder, helper))
    return buildFailpointsAddon(join(folder, 'spawn-owned.node'))
  }
  copyFileSync(join(root, 'native', 'spawn-owned-keeper'), join(native, 'spawn-owned-keeper'))
  buildFailpointsAddon(join(native, 'spawn-owned.node'))
}
