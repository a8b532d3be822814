// The entry points of the package, and how esbuild bundles them.
//
// Each entry point becomes one file: loading a dozen files takes half as long again. The entry
// points share the implementation of `index`.
import { mkdirSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
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

/**
 * Keeps imports of the option readers as imports of `adapter-options.js`, the one file that all
 * adapters share. It is no entry point of the package.
 */
const shareOptions = {
  name: 'share-options',
  setup({ onResolve }) {
    onResolve({ filter: /\/(read-options|option-keys)\.js$/ }, () => ({
      path: './adapter-options.js',
      external: true,
    }))
  },
}

/** The entry points by name, with the esbuild options of each. */
export const bundles = new Map([
  ['index', {}],
  ['adapter-options', {}],
  ...['child_process', 'register', 'node-pty', 'claude-agent-sdk', 'mcp', 'acp'].map((name) => [
    name,
    { plugins: [shareEntryPoints, shareOptions] },
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
  for (const { path, text } of outputFiles)
    writeFileSync(path, await compacted(text, name === 'cli' ? '' : '\t'))
}

/** Returns the exports of one file of ts/, for the build. It must not need the native part. */
export async function evaluate(name) {
  const { outputFiles } = await build({ ...common, entryPoints: [join(folder, `${name}.ts`)], write: false })
  const module = { exports: {} }
  new Function('module', 'exports', 'require', outputFiles[0].text)(
    module,
    module.exports,
    createRequire(import.meta.url),
  )
  return module.exports
}

/**
 * Removes the comments that stand on their own lines, and indents with `indent`: a sixth of the
 * installed JavaScript. The command line has no indent: bots do not load it.
 *
 * Lines of a string can look like a comment or an indent. So the result must be the same code.
 */
async function compacted(code, indent) {
  const shorter = code
    .replace(/^[ \t]*(?:\/\/.*|\/\*(?:[^*]|\*(?!\/))*\*\/[ \t]*)\n/gm, '')
    .replace(/^(?: {2})+/gm, (spaces) => indent.repeat(spaces.length / 2))
  const [before, after] = await Promise.all([code, shorter].map(withoutSpace))
  if (before !== after)
    throw new Error('the bundle has a string with a line that looks like a comment or an indent')
  return shorter
}

/** esbuild removes white space and comments together. */
async function withoutSpace(code) {
  return (await transform(code, { minifyWhitespace: true, charset: 'utf8', target: 'node20' })).code
}
