// docs/runtimes.md and scripts/runtimes name tests and runtimes that exist. Also tests behaviour
// that differs in Bun and Deno.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { spawnOwned } from 'spawn-owned'
import { table } from '../../scripts/runtimes/document.mjs'
import { readResults } from '../../scripts/runtimes/junit.mjs'
import { allFiles, reasons, sample } from '../../scripts/runtimes/plan.mjs'
import { runtimes } from '../../scripts/runtimes/runtimes.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { isNode } from '../support/system.mjs'

const page = readFileSync(fileURLToPath(new URL('../../docs/runtimes.md', import.meta.url)), 'utf8')
const fileOf = (name) => `${name}.test.mjs`

test('the page has a column for each runtime, and a row for tests that exist', () => {
  const [head, , ...rows] = page
    .match(/^\| tests +\|[\s\S]*?\n(?=\n)/m)[0]
    .trimEnd()
    .split('\n')
  const titles = head.split('|').slice(2, -1)
  assert.deepEqual(
    titles.map((title) => title.trim()),
    runtimes.map(({ title }) => title),
  )
  const names = rows.map((row) => row.match(/^\| `([^`]+)` /)[1])
  assert.ok(names.length > 0)
  for (const name of names) assert.ok(allFiles.includes(fileOf(name)), name)
  assert.doesNotMatch(page, /failed\*\*/)
})

test('each file that is left out exists, and the page has the reason', () => {
  for (const [runtime, files] of Object.entries(reasons)) {
    const { title } = runtimes.find(({ name }) => name === runtime)
    for (const [name, reason] of Object.entries(files)) {
      assert.ok(allFiles.includes(fileOf(name)), name)
      assert.ok(page.includes(`- ${title}, \`${name}\`: ${reason}.`), name)
    }
  }
  for (const file of sample()) assert.ok(allFiles.includes(file), file)
})

describe('readResults reads results', () => {
  const rows = {
    'as Node writes them': [
      `<testsuite name="a"><testcase name="one" classname="test"/><testsuite name="b">
       <testcase name="two" classname="test"><failure type="x" message="y">no</failure></testcase>
       <testcase name="three"><skipped type="skipped" message="why"/></testcase></testsuite></testsuite>`,
      { passed: 1, failed: 1, skipped: 1 },
    ],
    'as Bun writes them': [
      `<testsuite name="f"><testcase name="one" classname="a &gt; b" assertions="0" />
       <testcase name="two"><skipped /></testcase></testsuite>`,
      { passed: 1, failed: 0, skipped: 1 },
    ],
    'as Deno writes them, with suites among the tests': [
      `<testcase name="a &quot;suite&quot;" line="1"><failure message="1 test step failed">1</failure></testcase>
       <testcase name="a &quot;suite&quot; &gt; one" line="2"></testcase>
       <testcase name="a &quot;suite&quot; &gt; two"><failure message="m">n</failure></testcase>`,
      { passed: 1, failed: 1, skipped: 0 },
    ],
    'when there are none': ['', { passed: 0, failed: 0, skipped: 0 }],
  }
  for (const [name, [xml, expected]] of Object.entries(rows))
    test(name, () => assert.deepEqual(readResults(xml), expected))
})

test('the table shows tests that passed, failed, were skipped, left out or not run', () => {
  const counts = (passed, failed, skipped) => ({ passed, failed, skipped })
  const columns = [
    {
      name: 'node22',
      title: 'Node 22',
      files: { ipc: counts(3, 0, 1), run: counts(2, 1, 0) },
    },
    { name: 'bun', title: 'Bun', files: {} },
  ]
  const lines = table(columns).split('\n')
  assert.deepEqual(lines, [
    '| tests | Node 22 | Bun |',
    '| --- | --- | --- |',
    '| `ipc` | 3 (1) | left out |',
    '| `run` | 2 **1 failed** |  |',
    '',
  ])
})

test("'ipc' is refused in other runtimes than Node, and no process is started", {
  skip: isNode && 'this is Node',
}, (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'runtimes-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const marker = join(folder, 'started')
  assert.throws(() => spawnOwned('touch', [marker], { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] }), {
    code: 'ERR_OWNED_RUNTIME',
    message: /needs Node.*Nothing was started.*pipe/,
  })
  assert.equal(existsSync(marker), false)
})
