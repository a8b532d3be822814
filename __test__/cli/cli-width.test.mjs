// Tables and help fit the terminal, also with CJK text, emoji and combining characters.
import assert from 'node:assert/strict'
import { describe, sources, test } from '../support/sources.mjs'

const { COLUMNS, COMMANDS, counted, helpOf, lineOf, overview, padded, plain, table, truncated, widthOf } =
  await sources('cli/text', 'cli/help', 'cli/run-display', 'cli/command-spec', 'cli/commands/watch')

describe('widthOf counts the columns of', () => {
  for (const [what, text, expected] of [
    ['ASCII', 'node a.js', 9],
    ['accents', 'caf\u00e9', 4],
    ['a combining accent', 'cafe\u0301', 4],
    ['Chinese', '漢字', 4],
    ['Japanese', 'テスト・ひー', 12],
    ['half-width Katakana', 'ﾃｽﾄ', 3],
    ['Korean', '한국어', 6],
    ['Korean in single letters', '\u1112\u1161\u11ab', 2],
    ['full-width letters', 'ＡＢ', 4],
    ['an emoji', '🚀', 2],
    ['a family of four, joined', '👨‍👩‍👧‍👦', 2],
    ['an emoji with a skin tone', '👍🏽', 2],
    ['a flag', '🇯🇵', 2],
    ['a heart as an emoji', '❤\ufe0f', 2],
    ['a zero-width space', 'a\u200bb', 2],
    ['a box', '└─ ', 3],
    ['nothing', '', 0],
  ])
    test(what, () => assert.equal(widthOf(text), expected))
})

test('truncated never cuts a character in two, and never exceeds the width', () => {
  assert.equal(truncated('漢字漢字', 8), '漢字漢字')
  assert.equal(truncated('漢字漢字', 7), '漢字漢…')
  assert.equal(truncated('漢字漢字', 6), '漢字…')
  assert.equal(truncated('a👨‍👩‍👧‍👦b', 3), 'a…')
  assert.equal(truncated('cafe\u0301s', 5), 'cafe\u0301s')
  assert.equal(truncated('x', 0), '')
  assert.equal(padded('漢', 4), '漢  ')
})

describe('a table of runs', () => {
  const row = (run, session, command) =>
    [run, session, 'running', '2m10s', '41.2s', '412M', '14', 'keeper', '10106', command].map((text) => ({
      text,
    }))
  const rows = [
    row('063805a5', 'chat-17', 'claude -p --output-format stream-json --verbose'),
    row('漢字の実行', '会話🚀', 'echo 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字'),
    row('a'.repeat(128), 's'.repeat(60), 'x'),
  ]
  const at = (width) => table(COLUMNS, rows, { width, paint: plain })

  test('is aligned if it contains CJK text and emoji', () => {
    const lines = at(400)
    const columns = [...lines].map((line) => widthOf(line.slice(0, line.search(/running|STATE/))))
    assert.deepEqual(new Set(columns).size, 1, lines.join('\n'))
  })

  test('fits every width, and keeps the run and its state', () => {
    for (let width = 1; width <= 400; width++)
      for (const line of at(width)) assert.ok(widthOf(line) <= width, `${width}: ${line}`)
    assert.match(at(40)[1], /^063805a5 .*running +claude/)
    assert.match(at(20)[1], /^063805a5/)
  })

  test('omits the containment first, and nothing if there is room', () => {
    const short = [rows[0]]
    const header = (width) => table(COLUMNS, short, { width, paint: plain })[0].split(/ +/)
    const all = COLUMNS.map(({ title }) => title)
    assert.deepEqual(header(100), all)
    assert.deepEqual(
      header(80),
      all.filter((title) => title !== 'CONTAINMENT'),
    )
    assert.deepEqual(header(30), ['RUN', 'STATE', 'COMMAND'])
  })
})

test('help wraps its texts at every width', () => {
  for (const width of [40, 60, 80, 100]) {
    const style = { paint: plain, width, manual: 'man /a/path' }
    const pages = [overview(style), ...COMMANDS.map((command) => helpOf(command, style))]
    for (const line of pages.flat()) {
      // Examples and paths are printed as they are, to be copied.
      if (!/^ {2}spawn-owned |^ {2}\/|^Manual: /.test(line))
        assert.ok(widthOf(line) <= width, `${width}: ${line}`)
    }
  }
})

test('counted uses the singular for one', () => {
  const nouns = [0, 1, 2].map((count) => counted(count, 'process', 'processes'))
  assert.deepEqual(nouns, ['0 processes', '1 process', '2 processes'])
  assert.equal(counted(1, 'run'), '1 run')
  assert.equal(counted(3, 'run'), '3 runs')
})

test('watch prints a line for people', () => {
  const event = { atMs: 0, pid: 42, runId: 'nightly', command: 'node w.js', ageMs: 5000, dryRun: false }
  assert.equal(
    lineOf('orphan:detected', { ...event, status: 'confirmed', reason: 'its bot is gone' }),
    '1970-01-01T00:00:00.000Z detected run nightly (pid 42), 5s old, confirmed: its bot is gone. Command: node w.js',
  )
  assert.match(
    lineOf('orphan:skipped', { ...event, runId: null, ageMs: null, status: 'suspected', reason: 'r' }),
    / skipped pid 42, suspected: r\. Command: node w\.js$/,
  )
})
