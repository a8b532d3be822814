// scripts/docs/data holds the promises of the documents and the tests that show them. These tests
// check the data and the pages that are generated from it.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { claims } from '../../scripts/docs/data/claims.mjs'
import { leftOut, weaker } from '../../scripts/docs/data/wine.mjs'
import {
  cellOf,
  pathOf,
  reasonText,
  references,
  renderGuarantees,
  renderIndex,
  systems,
  tables,
  testFiles,
} from '../../scripts/docs/promises.mjs'
import { root } from '../../scripts/tools.mjs'
import { isLeftOut } from '../support/left-out.mjs'

const read = (path) => readFileSync(join(root, path), 'utf8').replaceAll('\r\n', '\n')
const rows = tables.flatMap((table) => table.rows)

describe('the pages agree with the data (npm run docs:tests)', () => {
  test('docs/tests.md is up to date', () => assert.equal(read('docs/tests.md'), renderIndex()))

  test('the tables of docs/guarantees.md are up to date', () => {
    const text = read('docs/guarantees.md')
    assert.equal(text, renderGuarantees(text))
  })
})

describe('every test that the data names exists', () => {
  const pages = ['guarantees.md', 'security.md', 'registry.md', 'reaping.md', 'cancelling.md']
  const all = references()

  test('the data names many tests', () => {
    assert.ok(all.length > 150, `${all.length} references`)
    const ofSecurity = claims.filter(({ page }) => page === 'security.md')
    assert.ok(ofSecurity.length > 20, `${ofSecurity.length} claims of security.md`)
    assert.deepEqual([...new Set(claims.map(({ page }) => page))], pages)
  })

  test('each file exists and contains the name', () => {
    for (const { where, file, name } of all) {
      assert.ok(existsSync(join(root, pathOf(file))), `${where}: there is no file ${file}, for “${name}”`)
      assert.ok(read(pathOf(file)).includes(name), `${where}: ${file} has no test “${name}”`)
    }
  })

  test('every claim names a test', () => {
    for (const { says, tests } of claims) assert.ok(tests.length > 0, says)
  })
})

describe('every cell of the tables', () => {
  test('belongs to a row with one cell for each system', () => {
    assert.ok(rows.length > 25, `${rows.length} rows`)
    for (const row of rows)
      assert.deepEqual(
        Object.keys(row),
        ['when', 'promise', ...systems.map(({ key }) => key)],
        `the row “${row.when}”`,
      )
  })

  test('names a test, refers to a cell of Linux that does, or promises nothing', () => {
    const promisesNothing = ({ mark }) => ['no', '–'].includes(mark)
    const bare = rows.flatMap((row) =>
      systems
        .map(({ key, title }) => ({ where: `${row.when}: ${title}`, ...cellOf(row, key) }))
        .filter((cell) => !promisesNothing(cell) && cell.tests.length === 0)
        .map(({ where }) => where),
    )
    assert.deepEqual(bare, [])
  })

  test('explains in a note what it does not promise', () => {
    for (const row of rows)
      for (const { key } of systems) {
        const { mark, note } = cellOf(row, key)
        if (['part', 'no'].includes(mark)) assert.ok(note, `the row “${row.when}”, ${key}`)
      }
  })

  test('is shown by tests that run', () =>
    assert.doesNotMatch(read('docs/guarantees.md'), /not shown|no test shows|not run here/i))

  for (const { key, title, platform } of systems) {
    test(`names tests that run on the system of the cell: ${title}`, () => {
      const wrong = []
      for (const row of rows)
        for (const [file, name] of cellOf(row, key).tests)
          if (pathOf(file).endsWith('.test.mjs') && isLeftOut(read(pathOf(file)), name, platform))
            wrong.push(`${row.when}: ${file} “${name}”`)
      assert.deepEqual(wrong, [])
    })
  }
})

test('no table of a page is wider than a screen', () => {
  const pages = readdirSync(join(root, 'docs'), { recursive: true })
    .map((path) => `docs/${path.replaceAll('\\', '/')}`)
    .filter((path) => path.endsWith('.md') && !path.startsWith('docs/api/'))
  assert.ok(pages.length > 30, `${pages.length} pages`)
  for (const page of [...pages, 'README.md']) {
    const wide = read(page)
      .split('\n')
      .filter((line) => line.startsWith('|') && line.length > 110)
    assert.deepEqual(wide, [], page)
  }
})

/** Every test of a file that Wine leaves out: its name, and the reason as the file writes it. */
function* leftOutIn(path) {
  const text = read(path)
  for (const { index, 1: reason } of text.matchAll(/notUnderWine\(\s*('[^']+'|[A-Z_]+)/g)) {
    const calls = [...text.slice(0, index).matchAll(/\b(test|same|describe)\(\s*(?:(['"`])(.*?)\2|\w+),/g)]
    // A name that is a variable comes from a table of names. Then the list names the group.
    const named = calls.at(-1)[3] ? calls.at(-1) : calls.findLast(([, what]) => what === 'describe')
    const name = named[3].replace(/\$\{.*/, '').trim()
    yield { name, reason: reason.replace(/^'|'$/g, '') }
  }
}

describe('the data lists each test that Wine leaves out, with the reason:', () => {
  for (const path of testFiles)
    for (const { name, reason } of leftOutIn(path)) {
      test(`${path}: ${name}`, () => {
        const entry = leftOut.find((it) => reasonText(it.reason) === reasonText(reason))
        assert.ok(entry, `no list has the reason “${reason}”`)
        const isNamed = entry.tests.some(([file, listed]) => pathOf(file) === path && listed === name)
        assert.ok(isNamed, `“${name}” is not in the list of “${reason}”`)
      })
    }

  test('and each file that checks for Wine', () => {
    const asks = (path, what) =>
      read(path)
        .replace(/^import .*|^ {2}isWine,$/gm, '')
        .match(what)
    const ours = testFiles.filter(
      (path) => !path.endsWith('/guarantees.test.mjs') && asks(path, /\bisWine\b/),
    )
    const rust = readdirSync(join(root, 'src'), { recursive: true })
      .map((path) => `src/${path.replaceAll('\\', '/')}`)
      .filter((path) => path.endsWith('.rs') && asks(path, /\bis_wine\(/))
    const listed = [...leftOut, ...weaker].flatMap(({ tests }) => tests.map(([file]) => pathOf(file)))
    for (const path of [...ours, ...rust]) assert.ok(listed.includes(path), `${path} is not listed`)
  })
})
