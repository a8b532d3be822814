// The streams of a run, in every runtime and with much data, without a comparison to child_process.
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { PassThrough, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { spawnOwned } from 'spawn-owned'
import { until } from '../support/bots.mjs'
import { assert, describe, options, test } from '../support/prelude.mjs'
import { randomFor } from '../support/random.mjs'
import { isWindows, NO_SHELL, posixOnly } from '../support/system.mjs'

const MIB = 1 << 20
const SIZE = (isWindows ? 8 : 64) * MIB

const closed = (child) => once(child, 'close')

/** Reads a stream to its end. */
async function all(stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks)
}

test(`${SIZE / MIB} MiB pass through stdin and stdout unchanged`, options, async () => {
  const random = randomFor('streams')
  const block = Buffer.from(Uint8Array.from({ length: MIB }, () => random() * 256))
  const [sent, received] = [createHash('sha256'), createHash('sha256')]
  const source = Readable.from(
    (function* () {
      for (let i = 0; i < SIZE / MIB; i++) {
        block.writeUInt32LE(i)
        sent.update(block)
        yield Buffer.from(block)
      }
    })(),
  )
  const child = spawnOwned('cat')
  let size = 0
  const reading = (async () => {
    for await (const chunk of child.stdout) {
      size += chunk.length
      received.update(chunk)
    }
  })()
  await Promise.all([pipeline(source, child.stdin), reading, closed(child)])
  assert.equal(size, SIZE)
  assert.equal(received.digest('hex'), sent.digest('hex'))
})

test('stdout and stderr are separate, each in its order', posixOnly(NO_SHELL, options), async () => {
  const line = 'i=0; while [ $i -lt 2000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done'
  const child = spawnOwned('sh', ['-c', line])
  const [out, err] = await Promise.all([all(child.stdout), all(child.stderr), closed(child)])
  const lines = (word) => Array.from({ length: 2000 }, (_, i) => `${word} ${i}\n`).join('')
  assert.equal(String(out), lines('out'))
  assert.equal(String(err), lines('err'))
})

describe('back-pressure', posixOnly(NO_SHELL), () => {
  test('blocks the command while the bot does not read, and loses nothing', options, async () => {
    // The command writes to stderr when it has written everything.
    const child = spawnOwned('sh', ['-c', `head -c ${SIZE} /dev/zero; echo done >&2`])
    let done = false
    child.stderr.on('data', () => {
      done = true
    })
    child.stdout.once('readable', () => {})
    await until(() => child.stdout.readableLength > 0, 'the stream has buffered data')
    // Gives a command that is wrongly not blocked the time to finish.
    await delay(300)
    assert.equal(done, false)
    assert.ok(child.stdout.readableLength < 4 * MIB, `${child.stdout.readableLength} bytes are in memory`)
    const [out] = await Promise.all([all(child.stdout), closed(child)])
    assert.equal(out.length, SIZE)
    assert.equal(done, true)
  })

  test(
    'makes write() return false while the command does not read, and emits drain later',
    options,
    async () => {
      const child = spawnOwned('sh', ['-c', 'read -r _ <&3; wc -c'], {
        stdio: ['pipe', 'pipe', 'inherit', 'pipe'],
      })
      const block = Buffer.alloc(MIB)
      let written = 0
      while (child.stdin.write(block)) written++
      assert.ok(++written < 8, `${written} MiB were accepted`)
      child.stdio[3].write('go\n')
      await once(child.stdin, 'drain')
      child.stdin.end()
      const [out] = await Promise.all([all(child.stdout), closed(child)])
      assert.equal(Number(out), written * MIB)
    },
  )
})

test(
  'a write to a command that has closed stdin fails with EPIPE',
  posixOnly(NO_SHELL, options),
  async () => {
    const child = spawnOwned('sh', ['-c', 'exec <&-; echo closed; exec sleep 60'])
    await once(child.stdout, 'data')
    const failed = once(child.stdin, 'error').catch((error) => [error])
    child.stdin.write('x'.repeat(MIB))
    const [error] = await failed
    assert.ok(['EPIPE', 'ECONNRESET'].includes(error.code), error.code)
    assert.equal((await child.cancel()).reason, 'manual-cancel')
  },
)

test('a library can replace the streams of the process object, as in Node', options, async (t) => {
  const child = spawnOwned('cat')
  t.after(() => child.cancel({ graceMs: 0 }))
  const { stdin, stdout } = child
  for (const name of ['stdin', 'stdout', 'stderr', 'stdio']) {
    const own = name === 'stdio' ? [] : new PassThrough()
    child[name] = own
    assert.equal(child[name], own)
    assert.ok(Object.keys(child).includes(name))
  }
  // The original streams still belong to the command.
  stdin.end('still there')
  assert.equal(String(await all(stdout)), 'still there')
  assert.equal((await child.wait()).exitCode, 0)
})

test('a run cannot be started twice', options, async (t) => {
  const child = spawnOwned('cat')
  t.after(() => child.cancel({ graceMs: 0 }))
  assert.throws(() => child.spawn({ file: 'cat' }), { code: 'ERR_OWNED_ALREADY_STARTED' })
  child.stdin.end()
  assert.equal((await child.wait()).exitCode, 0)
})
