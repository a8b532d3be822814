// The package has one implementation, in CommonJS. Its ESM entry points re-export that, so that `import` and `require`
// in one bot share one table of runs.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

const entries = ['index', 'child_process']

export function writeEsmEntries(require, dist) {
  for (const entry of entries) {
    const names = Object.keys(require(join(dist, `${entry}.js`))).filter((name) => name !== 'default')
    const source = `import cjs from './${entry}.js'\n\nexport const {\n${names.map((n) => `  ${n},\n`).join('')}} = cjs\nexport default cjs\n`
    writeFileSync(join(dist, `${entry}.mjs`), source)
  }
}
