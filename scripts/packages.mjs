// The packages as npm publishes them, made from the build results.
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { packageName, targets, thisTarget } from './targets/list.mjs'
import { isWindows, root } from './tools.mjs'

const isComplete = (target, folder) => target.files.every((file) => existsSync(join(folder, file)))

/** The folder with the release build of a target, or undefined. */
export function releaseFolder(target) {
  const folder = join(root, 'native', target.platform)
  return isComplete(target, folder) ? folder : undefined
}

/** The same; for this machine's target also the build of this checkout. */
export function builtFolder(target) {
  const own = join(root, 'native')
  return releaseFolder(target) ?? (target === thisTarget() && isComplete(target, own) ? own : undefined)
}

/**
 * Creates a folder below `into` with everything the target's package contains. `from`: where it was
 * built.
 */
export function stagePackage(target, from, into) {
  const folder = join(into, target.platform)
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  cpSync(join(root, 'npm', target.platform), folder, { recursive: true })
  copyFileSync(join(root, 'LICENSE'), join(folder, 'LICENSE'))
  for (const file of target.files) {
    copyFileSync(join(from, file), join(folder, file))
    // Workflow artifacts lose the executable bit.
    chmodSync(join(folder, file), 0o755)
  }
  return folder
}

/**
 * The manifest of the main package as npm publishes it.
 *
 * It depends on the packages of all platforms. The package.json of a checkout does not: these
 * packages do not exist before the version is published, so `npm ci` would reject the lock file.
 */
export function publishedManifest() {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const { allowScripts, ...published } = manifest
  const platforms = targets.map((target) => [packageName(target), manifest.version])
  return { ...published, optionalDependencies: Object.fromEntries(platforms.toSorted()) }
}

/** Creates a folder below `into` with everything the main package contains. */
export function stageMain(into) {
  const manifest = publishedManifest()
  const folder = join(into, 'main')
  rmSync(folder, { recursive: true, force: true })
  for (const name of [...manifest.files, 'LICENSE', 'README.md'])
    cpSync(join(root, name), join(folder, name), { recursive: true })
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  return folder
}

/**
 * Makes a tarball of a package folder. Returns its path and content: `files` (path, size, mode),
 * `unpackedSize`.
 */
export function pack(folder, destination) {
  mkdirSync(destination, { recursive: true })
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', destination]
  const options = { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], shell: isWindows }
  const [packed] = JSON.parse(execFileSync('npm', args, options))
  return { ...packed, tarball: join(destination, packed.filename.replace('@', '').replace('/', '-')) }
}
