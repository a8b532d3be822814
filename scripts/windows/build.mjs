// Builds the addon for Windows, with and without the failpoints of the tests, and the helper that
// creates IPC channels.
import { copyFileSync, mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { run, say } from '../tools.mjs'
import { failpoints, made, native, triple } from './places.mjs'
import { cargo, cargoEnvironment, target } from './toolchain.mjs'

export function buildAddons() {
  say('Building for Windows (a first build takes about two minutes)')
  build('failpoints', failpoints)
  build('node', native)
  buildHelper()
}

/** Both builds have the same file name, so each is moved away before the next one. */
function build(feature, folder) {
  const what = ['rustc', '--lib', '--crate-type', 'cdylib', '--release', '--features', feature]
  run(cargo, [...what, ...target, '--quiet'], { env: cargoEnvironment() })
  install('spawn_owned.dll', folder, 'spawn-owned.node')
}

function buildHelper() {
  const what = ['build', '--bin', 'spawn-owned-keeper', '--release']
  run(cargo, [...what, ...target, '--quiet'], { env: cargoEnvironment() })
  install('spawn-owned-keeper.exe', native, 'spawn-owned-keeper.exe')
}

function install(built, folder, name) {
  mkdirSync(folder, { recursive: true })
  const fresh = join(folder, `.${name}-${process.pid}`)
  copyFileSync(join(made, 'cargo', triple, 'release', built), fresh)
  renameSync(fresh, join(folder, name))
}
