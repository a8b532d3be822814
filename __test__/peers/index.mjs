import { symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** A package of this folder, by its name: `const { execa } = await importPeer('execa')`. */
export function importPeer(name) {
  return import(name)
}

/** Gives a built example that has a package.json of its own the packages of this folder. Returns its path. */
export function exampleWithPeers(name) {
  return linkPeers(`../../target/examples/${name}/`)
}

/** Gives the sources of such an example the packages of this folder, unless it has some: for their types. */
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
