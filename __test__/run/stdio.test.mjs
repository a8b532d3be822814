// The descriptors of a command and the streams of its owner behave as in child_process, with one
// exception:
// a stream ends with the tree, although another process may hold it.
import { createHash, randomFillSync } from 'node:crypto'
import { once } from 'node:events'
import {
  closeSync,
  createReadStream,
  createWriteStream,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { connect, createServer, Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { record, same, sameOnLinux, sameOnPosix, spawn, spawnOwned } from '../fixtures/side-by-side.mjs'
import { after, assert, describe, script, test } from '../support/prelude.mjs'
import {
  isWindows,
  linuxOnly,
  NO_PROC,
  NO_SENT_PIPES,
  NO_SETSID,
  NO_SHELL,
  NO_SOCKETS,
  posixOnly,
} from '../support/system.mjs'

const dir = mkdtempSync(join(tmpdir(), 'stdio-'))
after(() => rmSync(dir, { recursive: true, maxRetries: 10 }))
const at = (name) => join(dir, name)
const MiB = 1 << 20
const options = { timeout: 20_000 }

/** Writes the type and the flags of its descriptors 0 to 6 into a file. */
const REPORT = `for n in 0 1 2 3 4 5 6; do
  echo "$n $(readlink /proc/self/fd/$n | sed 's/:.*//') $(grep flags: /proc/self/fdinfo/$n 2>/dev/null)"
done >"$1"`.replaceAll('/proc/self/', '/proc/$$/')

describe('as in child_process, a command gets its descriptors from', () => {
  const file = at('file')
  writeFileSync(file, 'content')
  const read = openSync(file, 'r')
  const write = openSync(at('written'), 'w')
  after(() => [read, write].map(closeSync))
  const forms = {
    'no stdio option': undefined,
    "'pipe'": 'pipe',
    "'overlapped'": 'overlapped',
    "'ignore'": 'ignore',
    'an empty array': [],
    'a short array': ['ignore'],
    // biome-ignore lint/suspicious/noSparseArray: the test needs holes
    'holes and undefined': [, undefined, null, , 'pipe'],
    'a long array': ['ignore', 'pipe', 'ignore', 'pipe', 'ignore', 'pipe', 'pipe'],
    'descriptors in another order': ['ignore', write, 'ignore', read, write, read],
    'the same descriptor again and again': [read, write, write, write, read],
    'a negative descriptor': ['ignore', -1, 'ignore', -1],
    'an object with a descriptor': [{ fd: read }, { fd: write }, 'ignore', { fd: read }],
    "'overlapped' among others": ['overlapped', 'pipe', 'ignore', 'overlapped'],
    'a channel in the middle': ['ignore', 'ignore', 'ignore', 'ignore', 'ipc', 'pipe'],
  }
  for (const [what, stdio] of Object.entries(forms)) {
    sameOnLinux(NO_PROC)(what, async (start) => {
      const report = at(`report-${start.name}`)
      const child = start('sh', ['-c', REPORT, 'sh', report], { stdio })
      const streams = child.stdio.map((stream) => stream && [stream.constructor.name, stream.readable])
      const standard = [child.stdin, child.stdout, child.stderr].map((stream) => stream === null)
      const { log } = await record(child)
      return [streams, standard, log, readFileSync(report, 'utf8').split('\n')]
    })
  }

  for (const [what, stdio] of Object.entries(forms)) {
    same(`${what}, and its owner gets the same streams`, async (start) => {
      const child = start('true', { stdio })
      const streams = child.stdio.map((stream) => stream && [stream.constructor.name, stream.readable])
      const standard = [child.stdin, child.stdout, child.stderr].map((stream) => stream === null)
      const { log } = await record(child)
      // The channel ends before or after the exit, also in Node.
      return [streams, standard, log.filter(([event]) => event !== 'disconnect'), log.length]
    })
  }

  // 'inherit' passes the bot's own descriptors on, so this test starts a bot with known
  // descriptors.
  same("'inherit'", (start) => {
    const code = `const { spawn } = require('child_process')
      const { spawnOwned } = require('spawn-owned')
      ${start.name}('sh', ['-c', 'cat; echo out; echo err >&2; echo three >&3'], { stdio: ['inherit', 'inherit', 'inherit', 'inherit'] })`
    const bot = spawn(process.execPath, ['-e', code], {
      cwd: script('.'),
      stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
    })
    let three = ''
    bot.stdio[3].on('data', (text) => (three += text))
    bot.stdin.end('in\n')
    return record(bot).then((seen) => [seen, three])
  })

  same('streams of files', async (start, t) => {
    const from = createReadStream(file)
    const to = createWriteStream(at(`copy-${start.name}`))
    t.after(() => [from.destroy(), to.destroy()])
    await Promise.all([once(from, 'open'), once(to, 'open')])
    const seen = await record(start('cat', { stdio: [from, to, 'inherit'] }))
    return [seen, readFileSync(at(`copy-${start.name}`), 'utf8')]
  })

  same('the streams of another process', async (start) => {
    const line = 'read _; seq 1000; seq 2000 >&2'
    const first = start('sh', ['-c', line])
    const second = start('cat', { stdio: [first.stdout, 'pipe', 'inherit'] })
    const third = start('cat', { stdio: [first.stderr, 'pipe', 'inherit'] })
    const seen = Promise.all([second, third].map(record))
    // Written late, so that a bot that wrongly reads these streams would take the data.
    await once(third, 'spawn')
    await new Promise(setImmediate)
    first.stdin.end('go\n')
    for (const { log, stdout } of await seen) {
      assert.deepEqual(log.at(-1), ['close', 0, null])
      assert.ok(stdout.startsWith('1\n2\n'))
    }
    first.stdout.destroy()
    first.stderr.destroy()
    return (await seen).map(({ stdout }) => stdout)
  })

  same('the stdin of another process', async (start) => {
    const last = start('cat', { stdio: ['pipe', 'pipe', 'inherit'] })
    const first = start('echo', ['passed on'], { stdio: ['ignore', last.stdin, 'inherit'] })
    const seen = [record(last), record(first)]
    first.on('close', () => last.stdin.destroy())
    return Promise.all(seen)
  })

  /** Returns both ends of a connection that is not TCP: a named pipe or a Unix socket. */
  async function connected(t, name) {
    const server = createServer({ pauseOnConnect: true })
    server.listen(isWindows ? `\\\\.\\pipe\\spawn-owned-${process.pid}-${name}` : at(name))
    await once(server, 'listening')
    const client = connect(server.address())
    const [socket] = await once(server, 'connection')
    t.after(() => [client.destroy(), socket.destroy(), server.close()])
    return { socket, client }
  }

  same('a local connection', async (start, t) => {
    const { socket, client } = await connected(t, `connection-${start.name}`)
    const child = start('sh', ['-c', 'read line; echo got it'], { stdio: [socket, socket, 'inherit'] })
    const ended = record(child)
    client.write('hello\n')
    const text = String(await once(client, 'data'))
    return [text, (await ended).log]
  })

  test('a local connection for a run with a scope', options, async (t) => {
    const { socket, client } = await connected(t, 'waiting')
    const scope = { scopeKey: 'connection', replaceScope: true }
    const first = spawnOwned('cat', { ...scope, stdio: ['pipe', 'ignore', 'inherit'] })
    const child = spawnOwned('cat', { ...scope, stdio: [socket, 'pipe', 'inherit'] })
    const ended = record(child)
    // Sent before the command reads. The bot must not read it.
    client.write('for the second')
    child.stdout.once('data', () => child.kill())
    const { stdout } = await ended
    assert.equal(stdout, 'for the second')
    assert.equal(first.exitCode, null)
  })

  test('the streams of a process that is not owned', options, async () => {
    const first = spawn('echo', ['passed on'], { stdio: ['ignore', 'pipe', 'inherit'] })
    const second = spawnOwned('sh', ['-c', 'read go; cat <&3'], {
      stdio: ['pipe', 'pipe', 'inherit', first.stdout],
    })
    // After an exit, Node itself reads the rest of the stream.
    first.on('exit', () => setImmediate(() => second.stdin.end('go\n')))
    const { stdout, log } = await record(second)
    assert.equal(stdout.trimEnd(), 'passed on')
    assert.deepEqual(log.at(-1), ['close', 0, null])
    // The second command has exited, so the bot can read the stream again.
    await second.wait()
    first.stdout.resume()
    await once(first, 'close')
  })

  test('no TCP connection on Windows, with the same error as in Node', {
    ...options,
    skip: !isWindows && 'on POSIX a command gets the connection',
  }, async (t) => {
    const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const client = connect(server.address().port, '127.0.0.1')
    const [socket] = await once(server, 'connection')
    t.after(() => [client.destroy(), socket.destroy(), server.close()])
    const results = [spawn, spawnOwned].map((start) => {
      try {
        start('cat', { stdio: [socket, 'ignore', 'inherit'] })
        return 'nothing'
      } catch ({ code, errno, syscall, message }) {
        return { code, errno, syscall, message }
      }
    })
    assert.equal(results[0].code, 'ENOTSUP')
    assert.deepEqual(results[1], results[0])
  })

  sameOnPosix(NO_SOCKETS)('a TCP connection', async (start) => {
    const server = createServer({ pauseOnConnect: true }).listen(0)
    await once(server, 'listening')
    const client = connect(server.address().port)
    const [socket] = await once(server, 'connection')
    const child = start('sh', ['-c', 'read line; echo "got $line"'], { stdio: [socket, socket, 'inherit'] })
    const ended = record(child)
    socket.destroy()
    client.write('hello\n')
    const seen = [String(await once(client, 'data')), (await once(client, 'end')).length, (await ended).log]
    client.destroy()
    server.close()
    return seen
  })
})

test('a command gets none of the descriptors of its bot', linuxOnly(NO_PROC, options), async (t) => {
  const extra = openSync('/dev/null')
  t.after(() => closeSync(extra))
  const stdio = ['ignore', 'pipe', 'inherit', ...Array(21).fill('ignore'), extra]
  const { stdout } = await record(spawn(process.execPath, [script('reports-descriptors.mjs')], { stdio }))
  const seen = JSON.parse(stdout)
  assert.ok(seen.spawn.includes(24), 'the bot has a descriptor that plain commands inherit')
  assert.deepEqual(seen.spawnOwned, [0, 1, 2, 3])
})

describe('streams work as in child_process with', () => {
  same('stdin that ends', async (start) => {
    const child = start('cat')
    child.stdin.write('one ')
    child.stdin.end('two')
    return record(child)
  })

  same('output that the bot does not read', async (start) => {
    const child = start('sh', ['-c', 'yes | head -c 9000; yes | head -c 50 >&2'])
    const log = []
    for (const name of ['stdout', 'stderr']) {
      for (const event of ['end', 'close']) child[name].on(event, () => log.push(`${event} of ${name}`))
    }
    await once(child, 'close')
    return [log.toSorted(), child.stdout.readableLength]
  })

  same('output that the bot reads only after the exit', async (start) => {
    const child = start('sh', ['-c', 'echo out; echo err >&2'])
    return new Promise((resolve) => child.on('exit', () => record(child).then(resolve)))
  })

  same('for await', async (start) => {
    let text = ''
    for await (const chunk of start('seq', ['20000']).stdout.setEncoding('utf8')) text += chunk
    return text
  })

  sameOnPosix(NO_SHELL)('a command that does not read its input', async (start) => {
    const child = start('sh', ['-c', 'exec <&-; echo closed; exec cat <&2'], {
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    const failed = once(child.stdin, 'error')
    await once(child.stdout, 'data')
    child.stdin.write('the command does not read this')
    const [{ code, syscall }] = await failed
    child.kill('SIGKILL')
    await once(child, 'close')
    return [code, syscall]
  })

  same('a command whose stdout the bot destroys', async (start) => {
    const child = start('yes')
    child.stdout.once('data', () => child.stdout.destroy())
    const [code, signal] = await once(child, 'close')
    // With unread data in the socket, the first write fails with ECONNRESET and the next one with
    // EPIPE.
    assert.ok(code === 1 || signal === 'SIGPIPE')
    return [child.stdout.destroyed]
  })

  same('an additional descriptor in both directions', async (start) => {
    const child = start('cat', isWindows ? [] : ['/dev/fd/3'], {
      stdio: ['ignore', 'pipe', 'inherit', 'pipe', 'pipe'],
    })
    const other = start('sh', ['-c', 'cat <&3 >&3'], { stdio: ['ignore', 'ignore', 'inherit', 'pipe'] })
    child.kill('SIGKILL')
    child.stdio[4].destroy()
    other.stdio[3].end('there and back')
    let text = ''
    other.stdio[3].on('data', (chunk) => (text += chunk))
    await Promise.all([once(child, 'close'), once(other, 'close')])
    return text
  })

  test('64 MiB in both directions, with back-pressure', { timeout: 60_000 }, async () => {
    const child = spawnOwned('cat', { stdio: ['pipe', 'pipe', 'inherit'] })
    const [sent, got] = [createHash('sha256'), createHash('sha256')]
    let size = 0
    let most = 0
    function* source() {
      const block = Buffer.allocUnsafe(MiB)
      for (let i = 0; i < 64; i++) {
        randomFillSync(block)
        sent.update(block)
        most = Math.max(most, child.stdin.writableLength)
        yield Buffer.from(block)
      }
    }
    child.stdout.on('data', (chunk) => {
      got.update(chunk)
      size += chunk.length
    })
    await Promise.all([pipeline(Readable.from(source()), child.stdin), once(child, 'close')])
    assert.equal(size, 64 * MiB)
    assert.equal(got.digest('hex'), sent.digest('hex'))
    assert.ok(most <= 4 * MiB, `${most} bytes were buffered: there was no back-pressure`)
  })

  test('a command that writes faster than the bot reads: it has to wait', options, async () => {
    const child = spawnOwned('sh', ['-c', 'head -c 4000000 /dev/zero; echo done >&2'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    child.stdout.pause()
    let done = false
    child.stderr.on('data', () => (done = true))
    await once(child.stdout, 'readable')
    assert.equal(done, false)
    let size = 0
    child.stdout.on('data', (chunk) => (size += chunk.length)).resume()
    await once(child, 'close')
    assert.deepEqual([size, done], [4_000_000, true])
  })
})

describe('the streams of a run end with the tree', () => {
  test(
    'although a process outside the tree holds the other end',
    posixOnly(NO_SENT_PIPES, options),
    async (t) => {
      const outsider = spawn(process.execPath, [script('holds-what-it-is-given.mjs')], {
        stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      })
      t.after(() => outsider.kill('SIGKILL') && once(outsider, 'exit'))
      const child = spawnOwned(process.execPath, [script('gives-a-descriptor-away.mjs'), '1'], {
        stdio: ['pipe', 'pipe', 'inherit', 'ipc'],
      })
      const seen = record(child)
      const [, handle] = await once(child, 'message')
      assert.ok(handle instanceof Socket)
      outsider.send('take this', handle)
      await once(outsider, 'message')
      child.stdin.end()
      await child.wait()
      const { log, stdout } = await seen
      assert.equal(stdout, 'written before\n')
      assert.deepEqual(log.at(-1), ['close', 0, null])
      assert.equal(outsider.exitCode, null, 'the outsider still holds the stream')
    },
  )

  test('after all output was read', linuxOnly(NO_SETSID, options), async () => {
    const line = `mkfifo "$1"; setsid sh -c 'seq 20000; echo >"$1"; exec sleep 60' sh "$1" & read _ <"$1"`
    const child = spawnOwned('sh', ['-c', line, 'sh', at('fifo')])
    const { log, stdout } = await record(child)
    assert.equal(stdout, `${Array.from({ length: 20_000 }, (_, i) => i + 1).join('\n')}\n`)
    assert.deepEqual(log, [['spawn'], ['exit', 0, null], ['close', 0, null]])
    assert.equal((await child.wait()).reason, 'ownership-escape')
  })

  test('and not before', options, async () => {
    const child = spawnOwned('sh', ['-c', '(read _; echo late) <&3 & exit 0'], {
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      onLeaderExit: 'keep',
    })
    child.on('exit', () => child.stdio[3].end('go\n'))
    const { log, stdout } = await record(child)
    assert.equal(stdout, 'late\n')
    assert.deepEqual(log, [['spawn'], ['exit', 0, null], ['close', 0, null]])
  })
})
