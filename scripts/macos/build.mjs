// Builds addon and keeper for macOS, for both processors, and inspects the result, which cannot run
// here. `--optimized`: as for a release. Otherwise only checks that it builds, which is faster.
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
  // Quiet: it would warn that there is no SDK.
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

/** What can be checked without a Mac. */
function check(path, arch, kind) {
  const file = readMachO(path)
  assert.ok(file, `${path} is not a Mach-O file`)
  const { name, libraries, oldestSystem, isSigned, ...is } = file
  assert.deepEqual(is, { processor: arch, kind }, path)
  assert.deepEqual(libraries, [SYSTEM_LIBRARY], `${path} must need only the system library`)
  // The install name must not contain a path of the build machine.
  assert.ok(!name?.includes(root), `${path} has the install name ${name}`)
  // Apple's arm64 executes only signed code; an ad-hoc signature suffices.
  assert.ok(isSigned || arch !== 'arm64', `${path} is not signed`)
  say(`${path.slice(root.length + 1)}: ${kind} for ${arch}, macOS ${oldestSystem} or newer`)
}
