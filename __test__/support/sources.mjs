// Decisions by themselves: single files of ts/, which no entry of the package offers.
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isWine, testsNotUnderWine } from './system.mjs'

const require = createRequire(import.meta.url)

/** For files whose tests are about such decisions, and nothing else. */
export const { describe, test } = testsNotUnderWine(
  'esbuild is installed for Linux there, and what is decided does not depend on the system',
)

/** What `ts/<name>.ts` exports, for all of them together. None that needs the native part. */
export async function sources(...names) {
  if (isWine) return {}
  const { buildSync } = await import('esbuild')
  const folder = mkdtempSync(join(tmpdir(), 'sources-'))
  try {
    const outfile = join(folder, 'sources.cjs')
    buildSync({
      stdin: {
        contents: names.map((name) => `export * from './${name}.js'`).join('\n'),
        resolveDir: fileURLToPath(new URL('../../ts', import.meta.url)),
      },
      outfile,
      bundle: true,
      platform: 'node',
      format: 'cjs',
      // As in the bundles, so that the same lines count.
      minify: true,
      keepNames: true,
      // By which `npm run coverage` knows what was executed.
      sourcemap: 'inline',
    })
    return require(outfile)
  } finally {
    rmSync(folder, { recursive: true })
  }
}
