// Finds and loads the native addon.

import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type * as Binding from '../../native/binding.js'
import { version } from '../../package.json'
import { codedError } from '../util/errors.js'
import {
  byLibc,
  currentLibc,
  type InstalledPackage,
  movedHint,
  notInstalledMessage,
  outsideAsar,
  platformPackages,
} from './platform-packages.js'

/** Not `require`: bundlers replace that, and then it finds only what they have bundled. */
const fromHere = createRequire(__filename)

/** Whether this code is not in its own package any more. */
function isBundled(): boolean {
  try {
    return JSON.parse(readFileSync(join(__dirname, '..', 'package.json'), 'utf8')).name !== 'spawn-owned'
  } catch {
    return true
  }
}

/**
 * The directories that can contain the addon and the keeper: local builds, then platform packages.
 */
function* candidates(): Generator<string> {
  const local = join(__dirname, '..', 'native')
  // A build that was made on another system is in a subfolder.
  if (process.platform !== 'linux') yield join(local, `${process.platform}-${process.arch}`)
  yield local
  for (const { directory } of installedPackages()) yield outsideAsar(directory)
}

/** Returns the installed platform packages. Usually npm installs only the one for this libc. */
function installedPackages(): InstalledPackage[] {
  const found = platformPackages(process.platform, process.arch).flatMap((name) => {
    try {
      return [{ name, directory: dirname(fromHere.resolve(`${name}/package.json`)) }]
    } catch {
      // Not installed. `load` throws if none is.
      return []
    }
  })
  // Some installers install all. An addon for glibc can load on musl, and fail later.
  return found.length < 2 ? found : byLibc(found, currentLibc())
}

const suffix = process.platform === 'win32' ? '.exe' : ''

/** Must be equal to `INTERFACE` in src/node/mod.rs. Its comment says when to raise both. */
const INTERFACE = 5

/** An addon that belongs to another version of the JavaScript side. */
interface Mismatch {
  readonly addon: string
  readonly version: string
}

/** Returns undefined if the addon belongs to this version of the JavaScript side. */
function mismatchOf(addon: string, { VERSION, INTERFACE: number }: Partial<typeof Binding>) {
  if (VERSION === version && number === INTERFACE) return undefined
  return { addon, version: versionText(VERSION ?? 'unknown', number ?? 0) }
}

const versionText = (name: string, number: number) => `${name} (interface ${number})`

/** Loads the addon of this version. `keeper` is the path of the keeper's executable. */
export function load(): { binding: typeof Binding; keeper: string } {
  let cause: unknown
  let mismatch: Mismatch | undefined
  for (const directory of candidates()) {
    const addon = join(directory, 'spawn-owned.node')
    if (!existsSync(addon)) continue
    try {
      const binding: typeof Binding = fromHere(addon)
      const other = mismatchOf(addon, binding)
      if (!other) return { binding, keeper: join(directory, `spawn-owned-keeper${suffix}`) }
      // For example an old build in a checkout. Another candidate can match.
      mismatch ??= other
    } catch (error) {
      // For example an addon for another libc. Another candidate can load.
      cause ??= error
    }
  }
  if (mismatch) throw versionError(mismatch)
  const found = installedPackages().map(({ name }) => name)
  const message =
    notInstalledMessage(process.platform, process.arch, currentLibc(), found) +
    movedHint(__filename, isBundled())
  const error = codedError(Error, 'ERR_OWNED_NOT_INSTALLED', message)
  throw Object.assign(error, cause === undefined ? {} : { cause })
}

function versionError(other: Mismatch): Error {
  const ours = join(__dirname, '..')
  return codedError(
    Error,
    'ERR_OWNED_VERSION_MISMATCH',
    `The JavaScript of spawn-owned in ${ours} is version ${versionText(version, INTERFACE)}, and its native addon ${other.addon} is ` +
      `version ${other.version}. Nothing was started. Both must have the same version: reinstall spawn-owned together with its ` +
      'package for this platform, or run "npm run build" in a checkout.',
  )
}
