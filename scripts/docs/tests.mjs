// npm run docs:tests: generates docs/tests.md and the tables of docs/guarantees.md from the data
// folder. `--check` writes nothing, and fails if a page would change.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { root, say } from '../tools.mjs'
import { renderGuarantees, renderIndex } from './promises.mjs'

const pages = [
  { path: 'docs/guarantees.md', render: renderGuarantees },
  { path: 'docs/tests.md', render: renderIndex },
]
const read = (path) => (existsSync(join(root, path)) ? readFileSync(join(root, path), 'utf8') : '')
const stale = pages.filter(({ path, render }) => read(path) !== render(read(path)))

if (!process.argv.includes('--check')) {
  for (const { path, render } of stale) writeFileSync(join(root, path), render(read(path)))
  say(`changed ${stale.length} of ${pages.length} pages`)
} else if (stale.length > 0) {
  const names = stale.map(({ path }) => path).join(', ')
  console.error(`${names} does not agree with scripts/docs/data. Run: npm run docs:tests`)
  process.exit(1)
}
