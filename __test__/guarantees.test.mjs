// docs/guarantees.md and docs/security.md name the tests that show what they say. A test that is not there shows nothing.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isLeftOut } from './support/left-out.mjs'

const reasons = await import('./support/system.mjs')
const root = fileURLToPath(new URL('..', import.meta.url))
const read = (path) => readFileSync(join(root, path), 'utf8')
const document = read('docs/guarantees.md')
const aboutWine = document.slice(document.indexOf('\n## What Wine cannot do'))

/** A file as the document names it: that of a test, or a path. */
const pathOf = (name) => (name.includes('/') ? name : `__test__/${name}.test.mjs`)

/** `file` “name”, “another name in the same file” */
function* references(text) {
  let file
  for (const [, named, name] of text.matchAll(/`([\w./-]+)`|“([^”]+)”/g)) {
    if (named) file = named
    else yield { file, name: name.replace(/\s+/g, ' ') }
  }
}

/** Every test that is left out under Wine, by the way in which that is written. */
function* leftOut(file) {
  const text = read(join('__test__', file))
  for (const { index, 1: reason } of text.matchAll(/notUnderWine\(\s*('[^']+'|[A-Z_]+)/g)) {
    const calls = [...text.slice(0, index).matchAll(/\b(test|same|describe)\(\s*(?:(['"`])(.*?)\2|\w+),/g)]
    // A name that is no text here is one of a table; then the group is what is named.
    const named = calls.at(-1)[3] ? calls.at(-1) : calls.findLast(([, what]) => what === 'describe')
    const name = named[3].replace(/\$\{.*/, '').trim()
    yield { name, reason: reason.startsWith("'") ? reason.slice(1, -1) : reasons[reason] }
  }
}

const tests = readdirSync(join(root, '__test__')).filter((file) => file.endsWith('.test.mjs'))

for (const [path, least] of [
  ['docs/guarantees.md', 50],
  ['docs/security.md', 20],
]) {
  test(`every test that ${path} names exists`, () => {
    const all = [...references(read(path))]
    assert.ok(all.length > least, `${all.length} references were understood`)
    for (const { file, name } of all) {
      assert.ok(file && existsSync(join(root, pathOf(file))), `there is no ${file}, for “${name}”`)
      assert.ok(read(pathOf(file)).includes(name), `${file} has no test “${name}”`)
    }
  })
}

/** The rows of the tables whose columns are tiers: what happens, and what each tier says of it. */
const rows = document
  .split('\n')
  .filter((line) => line.startsWith('| ') && !/^\| (-+|event|it) /.test(line))
  .map((line) => line.slice(1, -1).split(' | '))
  .map(([what, ...cells]) => [what, ...cells].map((cell) => cell.trim()))

/** Those of a tier: what happens, the cell, and that of Linux, which it may refer to. */
const tier = (column) => rows.map((row) => ({ what: row[0], cell: row[column], linux: row[1] }))

/** Every test that a cell names; without a name, all of a file. */
function testsIn(cell) {
  const named = [...references(cell)].filter(({ file }) => file && !file.includes('/'))
  const files = [...cell.matchAll(/`([\w-]+)`/g)].map(([, file]) => ({ file, name: '' }))
  const whole = files.filter(({ file }) => tests.includes(`${file}.test.mjs`))
  return [...named, ...whole.filter(({ file }) => !named.some((it) => it.file === file))]
}

describe('every cell of the tables', () => {
  const promisesNothing = /\*\*Not promised\*\*|^there (is|are) (none|no|only)|^–$/
  const refers = /^(as|the same)\b/i

  test('there are', () => {
    assert.ok(rows.length > 25, `${rows.length} rows were understood`)
    for (const row of rows) assert.equal(row.length, 5, row[0])
  })

  test('names a test, refers to a cell that does, or promises nothing', () => {
    const isShown = (cell) =>
      promisesNothing.test(cell) ||
      refers.test(cell) ||
      testsIn(cell).length > 0 ||
      [...references(cell)].length > 0
    const bare = rows.flatMap(([what, ...cells]) =>
      cells.filter((cell) => !isShown(cell)).map((cell) => [what, cell]),
    )
    assert.deepEqual(bare, [])
  })

  test('is shown', () => assert.doesNotMatch(document, /not shown|no test shows|not run here/i))

  for (const [column, name, system] of [
    [1, 'Linux', 'linux'],
    [2, 'Linux, cgroup', 'linux'],
    [3, 'macOS', 'darwin'],
    [4, 'Windows', 'win32'],
  ]) {
    test(`names tests that run there: ${name}`, () => {
      const wrong = []
      for (const { what, cell, linux } of tier(column)) {
        const meant = refers.test(cell) ? [...testsIn(linux), ...testsIn(cell)] : testsIn(cell)
        for (const { file, name } of meant)
          if (isLeftOut(read(pathOf(file)), name, system)) wrong.push(`${what}: \`${file}\` “${name}”`)
      }
      assert.deepEqual(wrong, [])
    })
  }
})

describe('what is left out because of Wine is listed, with the reason:', () => {
  for (const file of tests) {
    const short = file.replace('.test.mjs', '')
    for (const { name, reason } of leftOut(file)) {
      test(`${short}: ${name}`, () => {
        const paragraph = aboutWine.split('\n\n**').find((part) => part.startsWith(reason))
        assert.ok(paragraph, `no paragraph begins with the reason “${reason}”`)
        const isNamed = [...references(paragraph)].some((it) => it.file === short && it.name === name)
        assert.ok(isNamed, `“${name}” is not in the list below “${reason}”`)
      })
    }
  }

  test('and so is every file that asks whether it is Wine', () => {
    const asks = (path, what) =>
      read(path)
        .replace(/^import .*|^ {2}isWine,$/gm, '')
        .match(what)
    const ours = tests.filter(
      (file) => file !== 'guarantees.test.mjs' && asks(join('__test__', file), /\bisWine\b/),
    )
    const rust = readdirSync(join(root, 'src'), { recursive: true })
      .map((path) => `src/${path.replaceAll('\\', '/')}`)
      .filter((path) => path.endsWith('.rs') && asks(path, /\bis_wine\(/))
    for (const file of [...ours.map((file) => file.replace('.test.mjs', '')), ...rust])
      assert.ok(aboutWine.includes(`\`${file}\``), `${file} is not named`)
  })
})
