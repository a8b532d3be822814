// Builds the addon for Windows, with and without the failpoints of the tests.
import { copyFileSync, mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { run, say } from '../tools.mjs'
import { failpoints, made, native, triple } from './places.mjs'
import { cargo, cargoEnvironment, target } from './toolchain.mjs'

export function buildAddons() {
  say('Building for Windows (a first build takes about two minutes)')
  build('failpoints', failpoints)
  build('node', native)
}

/** Both come out under the same name, so each is taken away before the next one is built. */
function build(feature, folder) {
  const what = ['rustc', '--lib', '--crate-type', 'cdylib', '--release', '--features', feature]
  run(cargo, [...what, ...target, '--quiet'], { env: cargoEnvironment() })
  mkdirSync(folder, { recursive: true })
  const fresh = join(folder, `.spawn-owned.node-${process.pid}`)
  copyFileSync(join(made, 'cargo', triple, 'release', 'spawn_owned.dll'), fresh)
  renameSync(fresh, join(folder, 'spawn-owned.node'))
}
