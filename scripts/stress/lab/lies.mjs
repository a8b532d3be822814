/** What the bots of a round are told of clock and disk. faults/lies.c has the other half. */

import { execFileSync } from 'node:child_process'
import { mkdirSync, openSync, renameSync, statSync, writeSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { root } from '../../tools.mjs'

const source = fileURLToPath(new URL('./faults/lies.c', import.meta.url))
const library = join(root, 'target', 'stress', 'lies.so')

/** The library's path; made if need be, before there are rounds that could make it side by side. */
export function buildLies() {
  const made = statSync(library, { throwIfNoEntry: false })?.mtimeMs ?? 0
  if (made > statSync(source).mtimeMs) return library
  mkdirSync(dirname(library), { recursive: true })
  const unfinished = `${library}.${process.pid}`
  execFileSync('cc', ['-shared', '-fPIC', '-O1', '-Wall', '-Wextra', '-o', unfinished, source, '-ldl'])
  renameSync(unfinished, library)
  return library
}

export class Lies {
  #path
  #file
  #offset = 0
  #delay = 0

  constructor(folder) {
    this.#path = join(folder, 'lies')
    this.#file = openSync(this.#path, 'w')
    this.#tell()
  }

  /** What a bot is started with. */
  get env() {
    return { LD_PRELOAD: library, SPAWN_OWNED_LAB_LIES: this.#path }
  }

  jump(ms) {
    this.#offset += ms
    this.#tell()
  }

  slowDown(ms) {
    this.#delay = ms
    this.#tell()
  }

  #tell() {
    const numbers = new BigInt64Array([BigInt(this.#offset), BigInt(this.#delay)])
    writeSync(this.#file, new Uint8Array(numbers.buffer), 0, 16, 0)
  }
}
