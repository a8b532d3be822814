// Single files of ts/ with pure decisions, which no entry point of the package exports.
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isWine, testsNotUnderWine } from './system.mjs'

const require = createRequire(import.meta.url)

/** For files that test only such decisions. */
export const { describe, test } = testsNotUnderWine(
  'under Wine esbuild is installed for Linux, and these decisions do not depend on the system',
)

/** The exports of all `ts/<name>.ts`. None may need the native part. */
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
      charset: 'utf8',
      keepNames: true,
      // `npm run coverage` uses it to find the executed lines.
      sourcemap: 'inline',
    })
    return require(outfile)
  } finally {
    rmSync(folder, { recursive: true })
  }
}
