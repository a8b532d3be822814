// The reporter of `npm test`: it prints nothing for passed tests and all details of failed ones.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'
import { report } from '../../scripts/test-report.mjs'
import { root } from '../../scripts/tools.mjs'

const file = join(root, '__test__', 'x.test.mjs')
const event = (type, name, nesting, more = {}) => ({
  type: `test:${type}`,
  data: { file, name, nesting, details: { duration_ms: 12 }, ...more },
})
const failure = (error) => ({ details: { duration_ms: 12, error } })
const reported = (events, more = {}) =>
  text(Readable.from(report(Readable.from(events), { isTerminal: false, ...more })))

test('when all tests pass, the report is one line', async () => {
  const said = await reported([
    event('start', 'suite', 0),
    event('start', 'good', 1),
    event('pass', 'good', 1),
    event('pass', 'left out', 1, { skip: 'not here' }),
    event('pass', 'suite', 0, { details: { type: 'suite' } }),
  ])
  assert.equal(said, 'tests: 1 passed, 0 failed, 1 skipped, 0 s\n')
})

test('a failed test is reported with its file, suites, error, stderr, and once more in the summary', async () => {
  const said = await reported([
    event('start', 'suite', 0),
    event('start', 'bad', 1),
    { type: 'test:stderr', data: { file, message: 'a complaint\n' } },
    event('fail', 'bad', 1, failure({ failureType: 'testCodeFailure', cause: new Error('the cause') })),
    event('fail', 'suite', 0, failure({ failureType: 'subtestsFailed' })),
  ])
  const name = `${join('__test__', 'x.test.mjs')} › suite › bad`
  assert.ok(said.startsWith(`✗ ${name} (12 ms)\n    Error: the cause\n`), said)
  assert.match(said, /ends with:\n {4}a complaint\n/)
  assert.ok(said.endsWith(`tests: 0 passed, 1 failed, 0 skipped, 0 s\n  failed: ${name}\n`), said)
})

test('skipped tests are summed up by their reasons, the most frequent first', async () => {
  const skipped = (name, skip) => event('pass', name, 0, { skip })
  const said = await reported(
    [
      skipped('a', 'needs root'),
      skipped('b', 'needs Redis'),
      skipped('c', 'needs Redis'),
      skipped('d', true),
    ],
    { withReasons: true },
  )
  assert.equal(
    said,
    `tests: 0 passed, 0 failed, 4 skipped, 0 s
  2 skipped: needs Redis
  1 skipped: needs root
  1 skipped: no reason given
`,
  )
})

test('a file that fails as a whole is named once', async () => {
  const error = { failureType: 'testCodeFailure', cause: 'test failed', exitCode: 1, signal: null }
  const name = join('__test__', 'x.test.mjs')
  assert.ok((await reported([event('fail', file, 0, failure(error))])).endsWith(`\n  failed: ${name}\n`))
})

test('a file whose process ends early is reported with its exit code', async () => {
  const error = { failureType: 'testCodeFailure', cause: 'test failed', exitCode: 3, signal: null }
  assert.match(await reported([event('fail', file, 0, failure(error))]), /ended with exit code 3/)
})
