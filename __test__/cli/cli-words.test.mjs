// Parsing and formatting of the command line: the pure functions, without a process.
import assert from 'node:assert/strict'
import { describe, sources, test } from '../support/sources.mjs'

const { parseDuration, parseSize, formatAge, formatBytes, formatCpu, ...rest } = await sources(
  'cli/units',
  'cli/help',
  'cli/parse',
  'cli/event-log',
  'cli/run-display',
  'cli/man-page',
  'cli/commands/events',
)
const { EXIT_CODES, differences, manPage, parse, parseDecision, shortIds } = rest

const [SECOND, MINUTE, HOUR, DAY] = [1000, 60_000, 3_600_000, 86_400_000]
const [K, M, G, T] = [2 ** 10, 2 ** 20, 2 ** 30, 2 ** 40]

/** Defines one test for each row of a table. */
function table(title, answer, lines) {
  describe(title, () => {
    for (const [given, expected] of lines) test(`${given}`, () => assert.deepEqual(answer(given), expected))
  })
}

table('parseDuration reads', parseDuration, [
  ['90s', 90 * SECOND],
  ['90', 90 * SECOND],
  ['1.5', 1.5 * SECOND],
  ['250ms', 250],
  ['5m', 5 * MINUTE],
  ['1h30m', 1.5 * HOUR],
  ['2d', 2 * DAY],
  ['0.5ms', 1],
  ['', undefined],
  ['s', undefined],
  ['5 m', undefined],
  ['-5s', undefined],
  ['5S', undefined],
  ['1e3', undefined],
  ['90s!', undefined],
])

table('parseSize reads', parseSize, [
  ['1048576', M],
  ['512M', 512 * M],
  ['512m', 512 * M],
  ['2G', 2 * G],
  ['2GiB', 2 * G],
  ['2gb', 2 * G],
  ['1.5k', 1.5 * K],
  ['1T', T],
  ['7b', 7],
  ['', undefined],
  ['M', undefined],
  ['-1', undefined],
  ['2 G', undefined],
  ['2P', undefined],
  ['1e3', undefined],
])

table('formatAge prints', formatAge, [
  [-1, '0s'],
  [999, '0s'],
  [45 * SECOND, '45s'],
  [12 * MINUTE + 3 * SECOND, '12m03s'],
  [3 * HOUR + 20 * MINUTE, '3h20m'],
  [5 * DAY + 4 * HOUR, '5d04h'],
])

table('formatCpu prints', formatCpu, [
  [0, '0.00s'],
  [34, '0.03s'],
  [9_999, '10.00s'],
  [12_500, '12.5s'],
  [3 * MINUTE + 20 * SECOND, '3m20s'],
])

table('formatBytes prints', formatBytes, [
  [0, '0B'],
  [1023, '1023B'],
  [K, '1.0K'],
  [9.9 * K, '9.9K'],
  [10 * K, '10K'],
  // Not 1024K.
  [1023.6 * K, '1.0M'],
  [3.25 * G, '3.3G'],
  [5000 * T, '5000T'],
])

test('parse converts the values of options, and leaves the words after -- unchanged', () => {
  const words = 'run --memory 2G --processes 64 --grace 1m30s --label a=b --label c=d=e -- agent --memory 1G'
  const request = parse(words.split(' '))
  assert.deepEqual(
    ['memory', 'processes', 'grace', 'timeout'].map((name) => request.number(name)),
    [2 * G, 64, 90 * SECOND, undefined],
  )
  assert.deepEqual({ ...request.labels() }, { a: 'b', c: 'd=e' })
  assert.deepEqual(request.rest, ['agent', '--memory', '1G'])
})

describe('a run id is printed', () => {
  const [one, other] = ['01234567-89ab-4def-8123-456789abcdef', '01234567-89ff-4def-8123-456789abcdef']
  for (const [why, ids, expected] of [
    ['shortened, if it is a generated UUID', [one], ['01234567']],
    ['with as many characters as make it unique', [one, other], ['01234567-89a', '01234567-89f']],
    [
      'in full, if the caller has chosen it',
      ['nightly-build-of-tuesday', one],
      ['nightly-build-of-tuesday', '01234567'],
    ],
    ['in full, if another id starts with it', [one, `${one}-again`], [one, `${one}-again`]],
  ])
    test(why, () => assert.deepEqual([...shortIds(ids).values()], expected))
})

describe('a line of the event log', () => {
  const line = (cmd, reason) =>
    `2026-01-02T03:04:05.678Z KILLED pid=42 cmd=${cmd} age=5s status=confirmed reason=${reason}`
  const decision = { at: '2026-01-02T03:04:05.678Z', what: 'KILLED', pid: 42, age: '5s', status: 'confirmed' }
  for (const [why, text, expected] of [
    ['is parsed', line('"sleep 9"', '"it is"'), { ...decision, command: 'sleep 9', reason: 'it is' }],
    [
      'may contain escaped quotes',
      line('"a \\" reason=\\"b\\""', '"c\\\\"'),
      { ...decision, command: 'a " reason="b"', reason: 'c\\' },
    ],
    ['is ignored if it is incomplete', line('"sleep 9"', '"it is"').slice(0, -1), undefined],
    ['is ignored if text follows it', `${line('"sleep 9"', '"it is"')} more`, undefined],
    ['is ignored if a value is not valid JSON', line('"\\x"', '"it is"'), undefined],
    ['is ignored if the kind is unknown', line('"x"', '"y"').replace('KILLED', 'SPARED'), undefined],
    ['is ignored if it is empty', '', undefined],
  ])
    test(why, () => assert.deepEqual(parseDecision(text), expected))
})

describe('differences between two surveys reports', () => {
  const run = { runId: 'r', botPid: 7, state: 'running' }
  const changes = (before, after) => {
    const look = (record) => new Map(record ? [['r', record]] : [])
    return differences(look(before), look(after)).map(({ what, record }) => [what, record])
  }
  const exiting = { ...run, state: 'exiting' }
  const adopted = { ...run, botPid: 8 }
  for (const [why, before, after, expected] of [
    ['nothing, if nothing changed', run, { ...run }, []],
    ['a run that appeared', undefined, run, [['appeared', run]]],
    ['a run that is gone, with its last record', run, undefined, [['gone', run]]],
    ['a new state', run, exiting, [['exiting', exiting]]],
    ['a new owner', run, adopted, [['adopted', adopted]]],
    [
      'the state, if state and owner changed',
      run,
      { ...adopted, state: 'exiting' },
      [['exiting', { ...adopted, state: 'exiting' }]],
    ],
  ])
    test(why, () => assert.deepEqual(changes(before, after), expected))
})

describe('the man page', () => {
  const page = manPage('1.2.3')

  test('has every exit status', () => {
    for (const [code] of EXIT_CODES) assert.ok(page.includes(`.B ${code.replaceAll('-', '\\-')}`), code)
  })

  // troff swallows a line that starts with a dot or quote, and text after a backslash.
  test('escapes all text that troff would interpret', () => {
    for (const line of page) {
      assert.doesNotMatch(line, /\n/)
      assert.match(line, /^(?:\.(?:TH|SH|SS|TP|PP|B|I|RI) ?|[^.'])/, line)
      assert.doesNotMatch(line, /\\(?![-e&])/, line)
    }
  })
})
