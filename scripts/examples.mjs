// Builds the examples, which are in TypeScript, into target/examples. Node 22.18 and newer can run
// their sources without a build.
import { readdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { build } from 'esbuild'
import { root } from './tools.mjs'

const sources = join(root, 'examples')
const built = join(root, 'target', 'examples')

/** Keeps each file on its own: an example starts some of them by name. Imports the built files. */
const importBuiltFiles = {
  name: 'import-built-files',
  setup({ onResolve }) {
    onResolve({ filter: /^\.\/.*\.mts$/ }, ({ path, kind }) =>
      kind === 'entry-point' ? undefined : { path: path.replace(/\.mts$/, '.mjs'), external: true },
    )
  },
}

/** Builds every `.mts` file of the examples into a file of the same name with `.mjs`. */
export async function buildExamples() {
  const entryPoints = readdirSync(sources, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap(({ name }) => readdirSync(join(sources, name)).map((file) => join(sources, name, file)))
    .filter((file) => file.endsWith('.mts'))
  for (const folder of new Set(entryPoints.map(dirname)))
    rmSync(folder.replace(sources, built), { recursive: true, force: true })
  await build({
    entryPoints,
    outdir: built,
    outbase: sources,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    target: 'node20',
    logLevel: 'warning',
    plugins: [importBuiltFiles],
  })
}
