// Builds addon and keeper for macOS, for both of its processors, and looks at what came out. It cannot be run here.
// `--optimized`: as for a release. Otherwise only to see that it builds, which is quicker.
import assert from 'node:assert/strict'
import { chmodSync, copyFileSync, mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { root, run, say } from '../tools.mjs'
import { readMachO } from './mach-o.mjs'
import { made, native, targets } from './places.mjs'
import { cargoEnvironment, installToolchain, target, zigbuild } from './toolchain.mjs'

const SYSTEM_LIBRARY = '/usr/lib/libSystem.B.dylib'

const env = cargoEnvironment({ optimized: process.argv.includes('--optimized') })

installToolchain()
say('Building for macOS (a first build takes about four minutes)')
for (const { arch, triple } of targets) {
  const built = join(made, 'cargo', triple, 'release')
  // That there is no SDK is no news.
  const build = (what) => run(zigbuild, [...what, '--release', ...target(triple)], { env, quiet: true })
  build(['rustc', '--lib', '--crate-type', 'cdylib', '--features', 'node'])
  build(['zigbuild', '--bin', 'spawn-owned-keeper'])
  check(install(join(built, 'libspawn_owned.dylib'), native(arch), 'spawn-owned.node'), arch, 'library')
  check(install(join(built, 'spawn-owned-keeper'), native(arch), 'spawn-owned-keeper'), arch, 'executable')
}

function install(built, folder, name) {
  mkdirSync(folder, { recursive: true })
  const [fresh, place] = [join(folder, `.${name}-${process.pid}`), join(folder, name)]
  copyFileSync(built, fresh)
  chmodSync(fresh, 0o755)
  renameSync(fresh, place)
  return place
}

/** What can be told of it without a Mac: the rest is for one. */
function check(path, arch, kind) {
  const file = readMachO(path)
  assert.ok(file, `${path} is no Mach-O file`)
  const { name, libraries, oldestSystem, isSigned, ...is } = file
  assert.deepEqual(is, { processor: arch, kind }, path)
  assert.deepEqual(libraries, [SYSTEM_LIBRARY], `${path} needs nothing but the system's own library`)
  // A path of the machine it was built on would be of no use elsewhere, and nobody's business.
  assert.ok(!name?.includes(root), `${path} calls itself ${name}`)
  // That processor executes nothing that has no signature, if only one by nobody in particular.
  assert.ok(isSigned || arch !== 'arm64', `${path} is not signed`)
  say(`${path.slice(root.length + 1)}: ${kind} for ${arch}, macOS ${oldestSystem} or newer`)
}
