// The package has one implementation, in CommonJS. Its ESM entry points re-export that, so that `import` and `require`
// in one bot share one table of runs.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

const entries = ['index', 'child_process', 'node-pty', 'claude-agent-sdk', 'mcp']
/** These export nothing, and must not be loaded here for what they do. */
const hooks = ['hook']

export function writeEsmEntries(require, dist) {
  for (const entry of entries) {
    const names = Object.keys(require(join(dist, `${entry}.js`))).filter((name) => name !== 'default')
    write(dist, entry, [
      `const cjs = createRequire(import.meta.url)('./${entry}.js')`,
      `export const { ${names.join(', ')} } = cjs`,
      'export default cjs',
    ])
  }
  for (const entry of hooks) write(dist, entry, [`createRequire(import.meta.url)('./${entry}.js')`])
}

function write(dist, entry, lines) {
  // Not `import cjs from …`: that would parse the CommonJS side a second time, for names that are listed here anyway.
  const source = ["import { createRequire } from 'node:module'", '', ...lines, '']
  writeFileSync(join(dist, `${entry}.mjs`), source.join('\n'))
}
