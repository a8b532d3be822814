// Writes what `import` needs beside the CommonJS files: ESM entry points, and their declarations.
//
// The package has one implementation, in CommonJS. The ESM entry points re-export it, so that
// `import` and `require` in one bot share one table of runs.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

const entries = ['index', 'child_process', 'node-pty', 'claude-agent-sdk', 'mcp', 'acp']
/**
 * Entry points without exports. They act when they are loaded, so this script does not load them.
 */
const hooks = ['register']

/** Writes `<entry>.mjs` into the folder `dist`, for each entry point. */
export function writeEsmEntries(require, dist) {
  for (const entry of entries) {
    const names = Object.keys(require(join(dist, `${entry}.js`))).filter((name) => name !== 'default')
    write(dist, entry, [
      `const cjs = load('${publicName(entry)}')`,
      `export const { ${names.join(', ')} } = cjs`,
      'export default cjs',
    ])
  }
  for (const entry of hooks) write(dist, entry, [`load('${publicName(entry)}')`])
}

/** Writes `<entry>.d.mts` into the folder `types`, for each entry point. */
export function writeEsmDeclarations(types) {
  for (const entry of [...entries, ...hooks]) {
    // index.d.ts lies at the root of the package.
    const declarations = entry === 'index' ? '../index.js' : `./${entry}.js`
    const lines = [`export * from '${declarations}'`]
    // `import = require` and not `import * as`: the default is what `require` returns, with types.
    if (!hooks.includes(entry)) lines.unshift(`import cjs = require('${declarations}')`, 'export default cjs')
    writeFileSync(join(types, `${entry}.d.mts`), `${lines.join('\n')}\n`)
  }
}

/** The name by which users import an entry point. */
const publicName = (entry) => (entry === 'index' ? 'spawn-owned' : `spawn-owned/${entry}`)

/**
 * Loads the CommonJS file by its public name, not by its path: a bundler may have copied these lines
 * into another file, and beside that file `./index.js` is something else.
 */
const LOADER = `
/** Bundlers copy this file. Then the package is found from the bundle, if it is installed beside it. */
function load(name) {
  // A bundle in CommonJS has no import.meta.url.
  const here = import.meta.url ?? __filename
  try {
    return nodeModule.createRequire(here)(name)
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND' || !error.message.includes(\`'\${name}'\`)) throw error
    const message =
      \`\${name} is not installed beside \${here}, a bundle that contains a copy of its import. Install spawn-owned there, \` +
      "and exclude it from the bundle: --external:spawn-owned (esbuild), external: ['spawn-owned'] (tsup, Rollup), " +
      "ssr: { external: ['spawn-owned'] } (Vite), externals: { 'spawn-owned': 'commonjs spawn-owned' } (webpack), " +
      "serverExternalPackages: ['spawn-owned'] (Next.js)."
    throw Object.assign(new Error(message, { cause: error }), { code: 'ERR_OWNED_NOT_INSTALLED' })
  }
}
`

function write(dist, entry, lines) {
  // Not `import cjs from …`: Node would parse the CommonJS file a second time, for names that are
  // listed here anyway.
  // Nor `import { createRequire } …`: webpack replaces calls of that by something of its own.
  const source = ["import nodeModule from 'node:module'", '', ...lines, LOADER]
  writeFileSync(join(dist, `${entry}.mjs`), source.join('\n'))
}
