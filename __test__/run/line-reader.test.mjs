// LineReader: calls of next() and return() in any order, and output in parts.
import assert from 'node:assert/strict'
import { PassThrough, Readable } from 'node:stream'
import { describe } from 'node:test'
import { sources, test } from '../support/sources.mjs'

const { LineReader } = await sources('run/line-reader')
const options = { timeout: 60_000 }

/** A stream that gets its chunks from the test, and a reader of its lines. */
function opened(...chunks) {
  const stream = new PassThrough()
  const lines = new LineReader([stream])
  for (const chunk of chunks) stream.write(Buffer.from(chunk))
  return { stream, lines }
}

async function collect(lines) {
  const all = []
  for await (const line of lines) all.push(line)
  return all
}

describe('several calls of next() at once', options, () => {
  test('get the lines in the order of the calls', async () => {
    const { stream, lines } = opened()
    const calls = [lines.next(), lines.next(), lines.next(), lines.next()]
    stream.write('a\nb')
    assert.equal((await calls[0]).value, 'a')
    stream.end('\nc\n')
    const rest = await Promise.all(calls.slice(1))
    assert.deepEqual(
      rest.map(({ value, done }) => (done ? 'end' : value)),
      ['b', 'c', 'end'],
    )
    assert.deepEqual(await lines.next(), { value: undefined, done: true })
  })

  test('get lines that are there already in order, too', async () => {
    const { lines } = opened('a\nb\nc\n')
    const calls = await Promise.all([lines.next(), lines.next(), lines.next()])
    assert.deepEqual(
      calls.map(({ value }) => value),
      ['a', 'b', 'c'],
    )
  })

  test('a later call does not overtake one that waits', async () => {
    const { stream, lines } = opened()
    const first = lines.next()
    const second = new Promise((resolve) => stream.once('readable', () => resolve(lines.next())))
    stream.write('a\nb\n')
    assert.deepEqual([(await first).value, (await second).value], ['a', 'b'])
  })

  test('end after an error, which only the first call gets', async () => {
    const { stream, lines } = opened()
    const calls = Promise.allSettled([lines.next(), lines.next()])
    stream.destroy(new Error('broken'))
    const [first, second] = await calls
    assert.equal(first.reason.message, 'broken')
    assert.deepEqual(second.value, { value: undefined, done: true })
  })
})

test('return() ends the calls of next() that wait', options, async () => {
  const { stream, lines } = opened('begun')
  const calls = Promise.all([lines.next(), lines.next()])
  const end = { value: undefined, done: true }
  assert.deepEqual(await lines.return(), end)
  assert.deepEqual(await calls, [end, end])
  assert.equal(stream.read().toString(), 'begun', 'the stream has what was not returned')
  assert.equal(stream.listenerCount('readable'), 0)
})

describe('lines', options, () => {
  const snowman = Buffer.from('☃')
  const outputs = {
    'a carriage return and a line feed in two chunks': [
      ['a\r', '\nb\r', 'c\n'],
      ['a', 'b\rc'],
    ],
    'a character in three chunks': [
      [snowman.subarray(0, 1), snowman.subarray(1, 2), snowman.subarray(2), '\n'],
      ['☃'],
    ],
    'a last line without a line feed, in two chunks': [
      ['a\nb', 'c'],
      ['a', 'bc'],
    ],
    'a carriage return at the end': [['a\r'], ['a\r']],
  }
  for (const [name, [chunks, expected]] of Object.entries(outputs))
    test(`are right for ${name}`, async () => {
      // Each chunk is read alone.
      const stream = Readable.from(
        chunks.map((chunk) => Buffer.from(chunk)),
        { objectMode: true, highWaterMark: 1 },
      )
      assert.deepEqual(await collect(new LineReader([stream])), expected)
    })

  test('end when the stream is destroyed, after the part that was read', async () => {
    const { stream, lines } = opened('a\npart')
    assert.equal((await lines.next()).value, 'a')
    const next = lines.next()
    stream.destroy()
    assert.equal((await next).value, 'part')
    assert.equal((await lines.next()).done, true)
  })

  test('are none of a stream that was destroyed before', async () => {
    const stream = new PassThrough()
    stream.destroy()
    assert.deepEqual(await collect(new LineReader([stream])), [])
  })

  test('are not read before a caller asks', async () => {
    let count = 0
    const stream = new Readable({
      highWaterMark: 16,
      read() {
        this.push(++count <= 100 ? `${count}\n`.padStart(16) : null)
      },
    })
    const lines = new LineReader([stream])
    assert.equal((await lines.next()).value.trim(), '1')
    assert.ok(count < 10, `${count} chunks were read`)
    assert.equal((await collect(lines)).length, 99)
  })
})
