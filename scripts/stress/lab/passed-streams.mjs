/**
 * File descriptors that a bot passes to another process: the stdout of a run goes to a worker, and
 * a socket of the bot gets the same descriptor. When the run ends, that socket must still answer.
 */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('./worker.mjs', import.meta.url))
/** A Node process that gets no thread at its start may never become ready. */
const UP_MS = 10_000
const ANSWERS_MS = 5000

export class PassedStreams {
  #worker
  #servers = []

  /** False if the stream cannot be passed: it has ended, or does not exist. */
  async take(stream) {
    const worker = await this.#started()
    if (!stream?._handle || stream.destroyed) return false
    const taken = once(worker, 'message', { signal: AbortSignal.timeout(UP_MS) })
    worker.send('take this', stream, (error) => error && worker.emit('error', error))
    await taken.catch(throwWithCode)
    const server = createServer((socket) => socket.end('here'))
    server.listen(join(tmpdir(), `lab-${process.pid}-${this.#servers.length}`))
    await once(server, 'listening')
    this.#servers.push(server)
    return true
  }

  async #started() {
    if (this.#worker) return this.#worker
    const worker = fork(program, { stdio: 'ignore' })
    try {
      await once(worker, 'message', { signal: AbortSignal.timeout(UP_MS) })
    } catch (error) {
      worker.kill('SIGKILL')
      throwWithCode(error)
    }
    this.#worker = worker
    return worker
  }

  /** The sockets that do not answer. */
  async checkSockets() {
    const deaf = await Promise.all(
      this.#servers.map(async (it) => ((await answers(it)) ? [] : [it.address()])),
    )
    return deaf.flat()
  }

  async release() {
    for (const server of this.#servers.splice(0)) await new Promise((resolve) => server.close(resolve))
    const worker = this.#worker
    this.#worker = undefined
    if (!worker || worker.exitCode !== null || worker.signalCode !== null) return
    const exited = once(worker, 'exit')
    worker.disconnect()
    await exited
  }
}

async function answers(server) {
  const socket = connect(server.address())
  try {
    const [said] = await once(socket, 'data', { signal: AbortSignal.timeout(ANSWERS_MS) })
    return String(said) === 'here'
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

/** Every error of a bot needs an error code of the system. */
function throwWithCode(error) {
  throw error.name === 'AbortError'
    ? Object.assign(new Error('the worker does not answer'), { code: 'ETIMEDOUT' })
    : error
}
