// The packages as npm publishes them, made from what was built.
import { execFileSync } from 'node:child_process'
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { thisTarget } from './targets/list.mjs'
import { isWindows, root } from './tools.mjs'

const isComplete = (target, folder) => target.files.every((file) => existsSync(join(folder, file)))

/** Where a target's native part was built to be published. Undefined if it was not. */
export function releaseFolder(target) {
  const folder = join(root, 'native', target.platform)
  return isComplete(target, folder) ? folder : undefined
}

/** The same, or, if it is this machine's, where it was built for this checkout. */
export function builtFolder(target) {
  const own = join(root, 'native')
  return releaseFolder(target) ?? (target === thisTarget() && isComplete(target, own) ? own : undefined)
}

/** A folder below `into` with all that the target's package is to hold, `from` where it was built. */
export function stagePackage(target, from, into) {
  const folder = join(into, target.platform)
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  cpSync(join(root, 'npm', target.platform), folder, { recursive: true })
  copyFileSync(join(root, 'LICENSE'), join(folder, 'LICENSE'))
  for (const file of target.files) {
    copyFileSync(join(from, file), join(folder, file))
    // Artifacts of a workflow come without.
    chmodSync(join(folder, file), 0o755)
  }
  return folder
}

/** Makes a tarball of a package's folder. Returns its path, and what is in it: `files` (path, size, mode), `unpackedSize`. */
export function pack(folder, destination) {
  mkdirSync(destination, { recursive: true })
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', destination]
  const options = { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], shell: isWindows }
  const [packed] = JSON.parse(execFileSync('npm', args, options))
  return { ...packed, tarball: join(destination, packed.filename.replace('@', '').replace('/', '-')) }
}
