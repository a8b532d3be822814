// `npm run build:targets`: builds the addon and the keeper for every Linux into native/<platform>/,
// and checks them. `npm run build:targets -- linux-x64-musl` builds only this target.
import { chmodSync, copyFileSync, mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { root, run, say } from '../tools.mjs'
import { inspect } from './inspect.mjs'
import { GLIBC_FLOOR, linuxTargets } from './list.mjs'
import { environment, installToolchain, targetDirectory, zigbuild } from './toolchain.mjs'

const chosen = choose(process.argv.slice(2))
const keepers = [...new Set(chosen.map(({ keeperTriple }) => keeperTriple))]

const lack = installToolchain([...new Set([...chosen.map(({ triple }) => triple), ...keepers])])
if (lack !== undefined) {
  // Not an error here. A release refuses to continue without them.
  console.log(`targets: not built: ${lack}`)
  process.exit()
}
buildKeepers()
buildAddons()
if (chosen.map(check).includes(false)) process.exitCode = 1

function choose(names) {
  const unknown = names.filter((name) => !linuxTargets.some(({ platform }) => platform === name))
  if (unknown.length === 0)
    return linuxTargets.filter(({ platform }) => names.length === 0 || names.includes(platform))
  console.error(`unknown target ${unknown.join(', ')}. The targets are:`)
  console.error(`  ${linuxTargets.map(({ platform }) => platform).join(' ')}`)
  return process.exit(2)
}

/**
 * Static, at a fixed address, as scripts/build.mjs builds it for this machine. The standard library
 * is built for size, and without panic messages, which no process reads: they would be half of the
 * published file.
 */
function buildKeepers() {
  say('Building the keepers')
  const flags =
    '-C target-feature=+crt-static -C relocation-model=static -Z unstable-options -C panic=immediate-abort -C force-unwind-tables=no'
  const small = ['-Zbuild-std=std,panic_abort', '-Zbuild-std-features=optimize_for_size']
  build(['build', '--profile', 'keeper', '--bin', 'spawn-owned-keeper', ...small], keepers, () => flags, {
    RUSTC_BOOTSTRAP: '1',
  })
}

/**
 * Addons only: see scripts/build.mjs. With musl, the addon shares the C library of the program that
 * loads it.
 *
 * The standard library is built for size, without backtraces: there are no symbols that they could
 * show. Panics have no file and line either: each of them would be text in the published file.
 */
function buildAddons() {
  say('Building the addons')
  const small = ['-Zbuild-std=std,panic_unwind', '-Zbuild-std-features=panic-unwind,optimize_for_size']
  const what = ['rustc', '--lib', '--crate-type', 'cdylib', '--release', '--features', 'node', ...small]
  const versioned = ({ triple, libc }) => (libc === 'glibc' ? `${triple}.${GLIBC_FLOOR}` : triple)
  const flags = (triple) =>
    `-Z location-detail=none${triple.includes('-musl') ? ' -C target-feature=-crt-static' : ''}`
  // In sequence: Cargo builds a cdylib alone only for one target at a time.
  for (const target of chosen) build(what, [versioned(target)], flags, { RUSTC_BOOTSTRAP: '1' })
}

function build(what, triples, flags, more = {}) {
  const targets = triples.flatMap((triple) => ['--target', triple])
  const flagsOf = Object.fromEntries(triples.map((triple) => [triple.split('.')[0], flags(triple)]))
  const env = { ...environment(flagsOf), ...more }
  run(zigbuild, [...what, ...targets, '--target-dir', targetDirectory, '--quiet'], { env, quiet: true })
}

/** Prints a summary. False if the files do not match the promise. */
function check(target) {
  const folder = join(root, 'native', target.platform)
  mkdirSync(folder, { recursive: true })
  install(folder, 'spawn-owned.node', join(target.triple, 'release', 'libspawn_owned.so'))
  install(folder, 'spawn-owned-keeper', join(target.keeperTriple, 'keeper', 'spawn-owned-keeper'))
  const { summary, complaints } = inspect(target, folder)
  console.log(`${target.platform}: ${summary}`)
  for (const complaint of complaints) console.error(`  ${complaint}`)
  return complaints.length === 0
}

function install(folder, name, built) {
  const [fresh, place] = [join(folder, `.${name}-${process.pid}`), join(folder, name)]
  copyFileSync(join(targetDirectory, built), fresh)
  chmodSync(fresh, 0o755)
  renameSync(fresh, place)
}
