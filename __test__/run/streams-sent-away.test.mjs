// A bot sends a stream of a run to another process. That closes its descriptor in the bot, and the
// kernel reuses the descriptor for the
// next socket of the bot. Later events of the run must not touch that socket.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import { dirname, join } from 'node:path'
import { freshRegistry, supervise } from '../support/bots.mjs'
import { assert, test } from '../support/prelude.mjs'
import { NO_CHANNELS, NO_SENT_PIPES, nodeOnly, posixOnly } from '../support/system.mjs'

const options = nodeOnly(NO_CHANNELS, posixOnly(NO_SENT_PIPES, { timeout: 60_000 }))

/** Starts a process that receives sockets, and reports what it reads from them. */
async function receiver(t, folder) {
  const path = join(folder, 'receiver.cjs')
  writeFileSync(
    path,
    `process.on('message', (name, socket) => {
      process.send({ has: name })
      socket.on('data', (data) => process.send({ read: String(data) })).on('end', () => process.send({ end: true }))
    })`,
  )
  const worker = fork(path)
  t.after(async () => {
    const gone = once(worker, 'exit')
    worker.kill('SIGKILL')
    await gone
  })
  return worker
}

/** Sends a stream away, and returns its former file descriptor, which is free by then. */
async function sendAway(worker, stream) {
  const { fd } = stream._handle
  worker.send('stream', stream)
  assert.deepEqual((await once(worker, 'message'))[0], { has: 'stream' })
  return fd
}

/** Opens servers until the socket of one has this descriptor. */
async function serverAt(t, fd) {
  for (let tries = 0; tries < 50; tries++) {
    const server = http.createServer((_, response) => response.end('here'))
    server.listen(0, '127.0.0.1')
    t.after(() => server.close())
    await once(server, 'listening')
    if (server._handle.fd === fd) return server
  }
  throw new Error(`no server got the descriptor ${fd}`)
}

/** Returns a function that opens a connection with unread data at the given descriptor. */
async function unreadConnections(t) {
  const server = net.createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
  return async (fd) => {
    for (let tries = 0; tries < 50; tries++) {
      const client = net.connect(server.address().port, '127.0.0.1').pause()
      const [socket] = await once(server, 'connection')
      t.after(() => [client, socket].map((it) => it.destroy()))
      if (![client, socket].some((it) => it._handle.fd === fd)) continue
      client.write('unread')
      socket.write('unread')
      return
    }
    throw new Error(`no connection got the descriptor ${fd}`)
  }
}

async function answerOf(server) {
  const [response] = await once(
    http.get({ port: server.address().port, host: '127.0.0.1', agent: false }),
    'response',
  )
  let text = ''
  for await (const chunk of response) text += chunk
  return text
}

for (const name of ['stdout', 'stderr']) {
  test(
    `the end of a run does not touch a server that has the former descriptor of its ${name}`,
    options,
    async (t) => {
      const registryPath = freshRegistry()
      const { spawnOwned } = supervise(registryPath)
      const child = spawnOwned('sleep', ['600'], { graceMs: 1000 })
      const worker = await receiver(t, dirname(dirname(registryPath)))
      const server = await serverAt(t, await sendAway(worker, child[name]))
      assert.equal(await answerOf(server), 'here')
      const exit = await child.cancel()
      assert.deepEqual([exit.reason, exit.survivors], ['manual-cancel', []])
      // By then the run has closed its streams.
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
      assert.equal(await answerOf(server), 'here')
    },
  )
}

test('the receiver reads a sent stream to its end', options, async (t) => {
  const registryPath = freshRegistry()
  const { spawnOwned } = supervise(registryPath)
  const child = spawnOwned('sh', ['-c', 'read line; echo received'], {
    graceMs: 1000,
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  const worker = await receiver(t, dirname(dirname(registryPath)))
  await sendAway(worker, child.stdout)
  child.stdin.end('go\n')
  assert.deepEqual((await once(worker, 'message'))[0], { read: 'received\n' })
  assert.deepEqual((await once(worker, 'message'))[0], { end: true })
  assert.equal((await child.wait()).reason, 'exit')
})

test('data at the former descriptor of a sent stream is not output of a waiting run', options, async (t) => {
  const registryPath = freshRegistry()
  const { spawnOwned } = supervise(registryPath)
  const worker = await receiver(t, dirname(dirname(registryPath)))
  const unreadAt = await unreadConnections(t)
  const scope = { scopeKey: 'one', replaceExistingScope: true }
  const stubborn = 'trap "" TERM; echo ready; while :; do sleep 1; done'
  const first = spawnOwned('sh', ['-c', stubborn], { ...scope, graceMs: 1e8 })
  await once(first.stdout, 'data')
  const second = spawnOwned('sleep', ['600'], { ...scope, graceMs: 500, noOutputTimeoutMs: 300 })
  const { stdout, stderr } = second
  stderr.resume()
  await unreadAt(await sendAway(worker, stdout))
  assert.equal(second.state, 'starting', 'the run waits for its scope')
  first.kill('SIGKILL')
  // If the run took the connection for its stdout, the unread data would count as output, and the
  // idle timeout would not expire.
  const late = new Promise((resolve) => setTimeout(resolve, 15_000, { reason: 'none in 15 s' }).unref())
  const { reason } = await Promise.race([second.wait(), late])
  await second.cancel()
  assert.equal(reason, 'no-output-timeout')
})
