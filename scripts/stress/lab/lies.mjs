/** What the bots of a round are told of clock and disk. faults/lies.c has the other half. */

import { openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { liar } from './programs.mjs'

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
    return { LD_PRELOAD: liar, SPAWN_OWNED_LAB_LIES: this.#path }
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
