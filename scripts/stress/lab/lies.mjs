/**
 * Sets the clock offset and the disk delay that the bots of a round get. faults/lies.c is the other
 * half.
 */

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
    this.#write()
  }

  /** The environment of a bot. */
  get env() {
    return { LD_PRELOAD: liar, SPAWN_OWNED_LAB_LIES: this.#path }
  }

  jump(ms) {
    this.#offset += ms
    this.#write()
  }

  slowDown(ms) {
    this.#delay = ms
    this.#write()
  }

  #write() {
    const numbers = new BigInt64Array([BigInt(this.#offset), BigInt(this.#delay)])
    writeSync(this.#file, new Uint8Array(numbers.buffer), 0, 16, 0)
  }
}
