/**
 * A FIFO that every process of a tree holds open. Its EOF proves, independently of the library,
 * that all are gone.
 */

import { execFileSync } from 'node:child_process'
import { closeSync, constants, openSync, rmSync } from 'node:fs'
import { Socket } from 'node:net'
import { isAlive } from './proc.mjs'

export class Witness {
  pids = []
  #path
  #writer
  #socket
  #text = ''
  #onLine = () => {}

  constructor(path) {
    this.#path = path
    execFileSync('mkfifo', [path])
    const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    // Held until the tree is complete, so that EOF does not come before its start.
    this.#writer = openSync(path, constants.O_WRONLY)
    this.#socket = new Socket({ fd: reader, readable: true, writable: false })
    this.gone = new Promise((resolve) => {
      this.#socket.once('end', () => resolve(performance.now()))
    })
    this.#socket.on('data', (chunk) => this.#read(chunk))
  }

  #read(chunk) {
    this.#text += chunk
    const lines = this.#text.split('\n')
    this.#text = lines.pop()
    this.pids.push(...lines.map(Number))
    this.#onLine()
  }

  /** Resolves when `count` processes have written their PIDs. */
  async complete(count) {
    await new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`only ${this.pids.length} of ${count} started`)),
        10_000,
      )
      this.#onLine = () => {
        if (this.pids.length < count) return
        clearTimeout(timer)
        resolve()
      }
      this.#onLine()
    })
    closeSync(this.#writer)
  }

  alive() {
    return this.pids.filter(isAlive)
  }

  dispose() {
    this.#socket.destroy()
    rmSync(this.#path, { force: true })
  }
}
