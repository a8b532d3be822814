// `npm run build:targets`: the addon and the keeper for every Linux, whichever this one is, into native/<platform>/, and a check of them.
//   npm run build:targets -- linux-x64-musl    some of them only
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
  // A release refuses to go on without them.
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
  console.error(`no such target: ${unknown.join(', ')}; there are`)
  console.error(`  ${linuxTargets.map(({ platform }) => platform).join(' ')}`)
  return process.exit(2)
}

/**
 * Static, and at a fixed address: as scripts/build.mjs builds it for this machine. With a standard library that was built to be small, and
 * without the words for a panic, which nobody would read: half of what is published of it otherwise.
 */
function buildKeepers() {
  say('Building the keepers')
  const flags =
    '-C target-feature=+crt-static -C relocation-model=static -Z unstable-options -C panic=immediate-abort'
  const small = ['-Zbuild-std=std,panic_abort', '-Zbuild-std-features=optimize_for_size']
  build(['build', '--profile', 'keeper', '--bin', 'spawn-owned-keeper', ...small], keepers, () => flags, {
    RUSTC_BOOTSTRAP: '1',
  })
}

/**
 * As addons alone: see scripts/build.mjs. What a program with musl loads shares the program's own.
 *
 * The standard library is a small one here as well, and without what makes backtraces: there are no symbols that they could show.
 */
function buildAddons() {
  say('Building the addons')
  const small = ['-Zbuild-std=std,panic_unwind', '-Zbuild-std-features=panic-unwind,optimize_for_size']
  const what = ['rustc', '--lib', '--crate-type', 'cdylib', '--release', '--features', 'node', ...small]
  const versioned = ({ triple, libc }) => (libc === 'glibc' ? `${triple}.${GLIBC_FLOOR}` : triple)
  const flags = (triple) => (triple.includes('-musl') ? '-C target-feature=-crt-static' : '')
  // One after the other: Cargo makes an addon alone for one target only.
  for (const target of chosen) build(what, [versioned(target)], flags, { RUSTC_BOOTSTRAP: '1' })
}

function build(what, triples, flags, more = {}) {
  const targets = triples.flatMap((triple) => ['--target', triple])
  const flagsOf = Object.fromEntries(triples.map((triple) => [triple.split('.')[0], flags(triple)]))
  const env = { ...environment(flagsOf), ...more }
  run(zigbuild, [...what, ...targets, '--target-dir', targetDirectory, '--quiet'], { env, quiet: true })
}

/** Says what it is; false if it is not what it should be. */
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
