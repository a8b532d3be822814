// OutputCapture: which part of an output is kept.
import assert from 'node:assert/strict'
import { describe, sources, test } from '../support/sources.mjs'

const { OutputCapture } = await sources('run/output-capture')

function capture(chunks, { bytes = Number.MAX_SAFE_INTEGER, lines = Number.POSITIVE_INFINITY }) {
  const output = new OutputCapture({ bytes, lines })
  for (const chunk of chunks) output.add(Buffer.from(chunk))
  return output.result()
}

describe('a captured output', () => {
  for (const [name, chunks, limits, text, truncated] of [
    ['that fits is whole', ['ab', 'cd'], { bytes: 4 }, 'abcd', false],
    ['one byte too long loses its middle', ['ab', 'cde'], { bytes: 4 }, 'abde', true],
    ['has its larger half first', ['abcdefg'], { bytes: 3 }, 'abg', true],
    ['keeps whole characters', ['ż'.repeat(10)], { bytes: 6 }, 'żż', true],
    ['keeps whole characters of four bytes', ['🦀🦀🦀🦀'], { bytes: 10 }, '🦀🦀', true],
    ['of as many lines as the limit is whole', ['a\nb\n'], { lines: 2 }, 'a\nb\n', false],
    ['counts a last line without line feed', ['a\nb'], { lines: 1 }, 'a\n', true],
    ['has its first and last lines', ['a\nb\nc\nd\n'], { lines: 2 }, 'a\nd\n', true],
    ['has a note', ['a\nb\nc\nd\n'], { lines: 3 }, 'a\n[... 4 bytes omitted ...]\nd\n', true],
    ['of no lines is empty', ['a\n'], { lines: 0 }, '', true],
    ['keeps invalid bytes as replacement characters', [[0xff, 0x61]], {}, '\ufffda', false],
  ])
    test(name, () => assert.deepEqual(capture(chunks, limits), { text, truncated }))

  test('is within both limits, for every size and every way to cut it', () => {
    const text = Array.from({ length: 300 }, (_, index) => `line ${index} 🦀`).join('\n')
    const whole = Buffer.from(text)
    for (const bytes of [0, 1, 2, 7, 100, 256, 300, 1000, 5000])
      for (const lines of [0, 1, 2, 3, 10, 299, 300, Number.POSITIVE_INFINITY])
        for (const size of [1, 3, 64, 10_000]) {
          const chunks = []
          for (let at = 0; at < whole.length; at += size) chunks.push(whole.subarray(at, at + size))
          const result = capture(chunks, { bytes, lines })
          const what = `${bytes} bytes, ${lines} lines, chunks of ${size}`
          assert.ok(Buffer.byteLength(result.text) <= bytes, what)
          assert.ok(result.text === '' || result.text.split('\n').length <= lines + 1, what)
          assert.equal(result.truncated, whole.length > bytes || lines < 300, what)
          assert.ok(!result.text.includes('\ufffd'), what)
          if (!result.truncated) assert.equal(result.text, text)
        }
  })
})
