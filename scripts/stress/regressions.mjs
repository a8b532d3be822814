/**
 * Findings, saved as files in regressions/: a failed plan of the lab, or a failed round of a loop.
 * `npm run stress -- --ci` repeats each of them.
 *
 * A plan is saved with its steps, not only with its seed, so it stays the same when moves are added
 * to the lab.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { root } from '../tools.mjs'

const folder = fileURLToPath(new URL('./regressions', import.meta.url))

/**
 * All findings, with the names of their files: `{ name, found, plan }` of the lab, or `{ name,
 * found, loop, seed, round }`.
 */
export function savedFindings(from = folder) {
  const files = existsSync(from) ? readdirSync(from) : []
  return files.sort().map((file) => ({
    name: file.replace('.json', ''),
    ...JSON.parse(readFileSync(join(from, file), 'utf8')),
  }))
}

/** Returns the path of the new file, relative to the repository. */
export function saveFinding(finding, to = folder) {
  const { plan, loop, seed, round } = finding
  const name = plan ? `lab-${plan.seed}` : `${loop}-${seed}-${round}`
  const path = join(to, `${name}.json`)
  mkdirSync(to, { recursive: true })
  writeFileSync(path, `${JSON.stringify(finding, null, 2)}\n`)
  return relative(root, path)
}
