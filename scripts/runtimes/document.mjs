// The table in docs/runtimes.md, generated from full runs. The rest of that page is written by
// hand.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { root } from '../tools.mjs'
import { reasons } from './plan.mjs'
import { made, runtimes } from './runtimes.mjs'

const page = join(root, 'docs', 'runtimes.md')
const BEGIN = '<!-- made by `npm run test:runtimes -- --document` -->'
const END = '<!-- end -->'

const savedAt = ({ name }) => join(made, `results-${name}.json`)

/**
 * Keeps the results until the same runtime runs again, so that runtimes can be tested at different
 * times.
 */
export function save(runtime, version, results) {
  mkdirSync(made, { recursive: true })
  const before = saved(runtime)
  const counts = results.map(({ file, passed, failed, skipped }) => [
    nameOf(file),
    { passed, failed, skipped },
  ])
  const files = { ...(before?.version === version && before.files), ...Object.fromEntries(counts) }
  writeFileSync(savedAt(runtime), JSON.stringify({ version, files }))
}

const saved = (runtime) =>
  existsSync(savedAt(runtime)) ? JSON.parse(readFileSync(savedAt(runtime), 'utf8')) : undefined

export function writeDocument() {
  const columns = runtimes.filter(saved).map((runtime) => ({ ...runtime, ...saved(runtime) }))
  const text = readFileSync(page, 'utf8')
  const [before, rest] = text.split(BEGIN)
  const [, after] = rest.split(END)
  const generated = [versions(columns), table(columns), leftOutList()].join('\n')
  writeFileSync(page, `${before}${BEGIN}\n\n${generated}\n${END}${after}`)
}

const versions = (columns) => `Versions: ${columns.map(({ version }) => version).join(', ')}.\n`

/**
 * The table, narrow enough for a screen.
 *
 * @param columns  each with `title`, `name` and, per file, the counts
 */
export function table(columns) {
  const rows = [...new Set(columns.flatMap(({ files }) => Object.keys(files)))].toSorted()
  const cell = ({ name, files }, file) => {
    if (reasons[name]?.[file]) return 'left out'
    const counts = files[file]
    if (!counts) return ''
    const { passed, failed, skipped } = counts
    return [`${passed}`, skipped > 0 && `(${skipped})`, failed > 0 && `**${failed} failed**`]
      .filter(Boolean)
      .join(' ')
  }
  const line = (cells) => `| ${cells.join(' | ')} |\n`
  return [
    line(['tests', ...columns.map(({ title }) => title)]),
    line(['---', ...columns.map(() => '---')]),
    ...rows.map((file) => line([`\`${file}\``, ...columns.map((column) => cell(column, file))])),
  ].join('')
}

function leftOutList() {
  const lines = Object.entries(reasons).flatMap(([name, files]) => {
    const { title } = runtimes.find((runtime) => runtime.name === name)
    return Object.entries(files).map(([file, reason]) => `- ${title}, \`${file}\`: ${reason}.\n`)
  })
  return `Left out:\n\n${lines.join('')}`
}

const nameOf = (file) => basename(file, '.test.mjs')
