// The examples, as scripts/build.mjs builds them from their TypeScript sources.
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** The path of a program of an example. */
export function builtExample(name, program) {
  const path = fileURLToPath(new URL(`../../target/examples/${name}/${program}.mjs`, import.meta.url))
  if (!existsSync(path)) throw new Error(`${path} does not exist. Run: npm run build`)
  return path
}
