import { symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** A package of this folder, by its name: `const { execa } = await importPeer('execa')`. */
export function importPeer(name) {
  return import(name)
}

/**
 * Links the packages of this folder into a built example that has its own package.json. Returns the
 * path of the example.
 */
export function exampleWithPeers(name) {
  return linkPeers(`../../target/examples/${name}/`)
}

/** Does the same for the sources of such an example, for their types, unless they have packages. */
export function sourcesWithPeers(name) {
  return linkPeers(`../../examples/${name}/`)
}

function linkPeers(path) {
  const example = fileURLToPath(new URL(path, import.meta.url))
  const link = join(example, 'node_modules')
  try {
    symlinkSync(fileURLToPath(new URL('node_modules', import.meta.url)), link, 'junction')
  } catch (error) {
    if (error.code !== 'EEXIST') throw error
  }
  return example
}
