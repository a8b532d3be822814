// The entry points of the package, and how esbuild bundles them.
//
// Each entry point becomes one file: loading a dozen files takes half as long again. The entry
// points share the implementation of `index`.
import { mkdirSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { build, transform } from 'esbuild'
import { root } from './tools.mjs'

const folder = join(root, 'ts')

/**
 * Keeps imports of the shared entry points, from any folder of ts/, as imports of the file beside.
 */
const shareEntryPoints = {
  name: 'share-entry-points',
  setup({ onResolve }) {
    onResolve({ filter: /\/(index|child_process)\.js$/ }, ({ path, resolveDir, kind }) => {
      const name = basename(path, '.js')
      if (kind === 'entry-point' || join(resolveDir, dirname(path)) !== folder) return undefined
      return { path: `./${name}.js`, external: true }
    })
  },
}

const common = {
  bundle: true,
  platform: 'node',
  format: 'cjs',
  target: 'node20',
  // Not minified: stack traces, debuggers and readers of node_modules see our names and lines.
  charset: 'utf8',
  logLevel: 'warning',
}

/** The entry points by name, with the esbuild options of each. */
export const bundles = new Map([
  ['index', {}],
  ...['child_process', 'register', 'node-pty', 'claude-agent-sdk', 'mcp', 'acp'].map((name) => [
    name,
    { plugins: [shareEntryPoints] },
  ]),
  ['cli', { plugins: [shareEntryPoints], banner: { js: '#!/usr/bin/env node' } }],
])

/** Bundles one entry point into the folder `outdir`. `more` are additional esbuild options. */
export async function bundle(name, outdir, more = {}) {
  const entry = join(folder, `${name}.ts`)
  const options = {
    ...common,
    ...bundles.get(name),
    absWorkingDir: root,
    entryPoints: [entry],
    outdir,
    ...more,
  }
  // A source map would not match the text without comments.
  if (options.sourcemap) return void (await build(options))
  const { outputFiles } = await build({ ...options, write: false })
  mkdirSync(outdir, { recursive: true })
  for (const { path, text } of outputFiles) writeFileSync(path, await withoutComments(text))
}

/**
 * Removes the comments that stand on their own lines, a tenth of the installed JavaScript.
 *
 * Lines of a string can look like a comment. So the result must be the same code.
 */
async function withoutComments(code) {
  const stripped = code.replace(/^[ \t]*(?:\/\/.*|\/\*(?:[^*]|\*(?!\/))*\*\/[ \t]*)\n/gm, '')
  const [before, after] = await Promise.all([code, stripped].map(withoutSpace))
  if (before !== after) throw new Error('the bundle has a string with a line that looks like a comment')
  return stripped
}

/** esbuild removes white space and comments together. */
async function withoutSpace(code) {
  return (await transform(code, { minifyWhitespace: true, charset: 'utf8', target: 'node20' })).code
}
