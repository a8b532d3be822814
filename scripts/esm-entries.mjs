// The package has one implementation, in CommonJS. Its ESM entry points re-export that, so that `import` and `require`
// in one bot share one table of runs.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

const entries = ['index', 'child_process', 'node-pty', 'claude-agent-sdk', 'mcp']

export function writeEsmEntries(require, dist) {
  for (const entry of entries) {
    const names = Object.keys(require(join(dist, `${entry}.js`))).filter((name) => name !== 'default')
    const source = [
      // Not `import cjs from …`: that would parse the CommonJS side a second time, for names that are listed here anyway.
      "import { createRequire } from 'node:module'",
      '',
      `const cjs = createRequire(import.meta.url)('./${entry}.js')`,
      `export const { ${names.join(', ')} } = cjs`,
      'export default cjs',
      '',
    ].join('\n')
    writeFileSync(join(dist, `${entry}.mjs`), source)
  }
}
