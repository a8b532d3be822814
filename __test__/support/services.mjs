// Workers (fixtures/serves.mjs), and clients of them.
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { freshRegistry, supervise } from './bots.mjs'
import { assert, openWitness, script } from './prelude.mjs'

/**
 * A service for the test `t`, with its own registry, witness and port: the options for
 * ensureService, and a supervisor of this process. The marks of the witness count all processes
 * that were ever started.
 */
export async function service(t, { worker = {}, path = freshRegistry(), ...more } = {}) {
  const here = supervise(path)
  const witness = openWitness(t)
  const port = await freePort()
  const told = { witness: witness.path, port, ...worker }
  const options = {
    name: 'worker',
    command: process.execPath,
    args: [script('serves.mjs'), JSON.stringify(told)],
    port,
    readyTimeoutMs: 30_000,
    graceMs: 1000,
    ...more,
  }
  t.after(() => here.stopService(options.name, { graceMs: 0 }))
  /** A file that the worker waits for. */
  const file = (name) => join(witness.dir, name)
  return { here, path, witness, port, options, file, make: (name) => writeFileSync(file(name), '') }
}

/** A service that waits for a file before it listens. */
export async function slowService(t, more) {
  const it = await service(t, more)
  const [fixture, told] = it.options.args
  it.options.args = [fixture, JSON.stringify({ ...JSON.parse(told), after: it.file('go') })]
  return { ...it, go: () => it.make('go') }
}

/** The options for a second start: the same, with another witness. */
export function onceMore(t, { options }) {
  const witness = openWitness(t)
  const [fixture, told] = options.args
  const args = [fixture, JSON.stringify({ ...JSON.parse(told), witness: witness.path })]
  return { witness, options: { ...options, args } }
}

/** A port that was free a moment ago. */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** Listens at the port, in this process. */
export async function squat(t, port) {
  const server = createServer((socket) => socket.on('error', () => {}).end('squatter'))
  server.listen(port, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
}

/** The answer at this port: the PID of a worker. */
export async function heardAt(port) {
  const socket = connect({ port, host: '127.0.0.1' }).setEncoding('utf8')
  return (await socket.toArray()).join('')
}

/** The registry entry of a service. */
export const recordIn = ({ here, options: { name } }) => here.list({ scopeKey: `service:${name}` })[0]

/** Asserts that an error has this code, and a message with these parts. */
export const fails =
  (code, ...parts) =>
  (error) => {
    assert.equal(error.code, code, error.stack)
    for (const part of parts) assert.match(error.message, part)
    return true
  }
