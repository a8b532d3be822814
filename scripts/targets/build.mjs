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

installToolchain([...new Set([...chosen.map(({ triple }) => triple), ...keepers])])
for (const triple of keepers) buildKeeper(triple)
for (const target of chosen) buildAddon(target)
if (chosen.map(check).includes(false)) process.exitCode = 1

function choose(names) {
  const unknown = names.filter((name) => !linuxTargets.some(({ platform }) => platform === name))
  if (unknown.length === 0)
    return linuxTargets.filter(({ platform }) => names.length === 0 || names.includes(platform))
  console.error(`no such target: ${unknown.join(', ')}; there are`)
  console.error(`  ${linuxTargets.map(({ platform }) => platform).join(' ')}`)
  return process.exit(2)
}

/** Static, and at a fixed address: as scripts/build.mjs builds it for this machine. */
function buildKeeper(triple) {
  say(`Building the keeper for ${triple}`)
  const what = ['build', '--profile', 'keeper', '--bin', 'spawn-owned-keeper', '--target', triple]
  build(what, '-C target-feature=+crt-static -C relocation-model=static')
}

/** As an addon alone: see scripts/build.mjs. What is loaded by a program with musl shares the program's own. */
function buildAddon({ triple, libc }) {
  say(`Building the addon for ${triple}`)
  const versioned = libc === 'glibc' ? `${triple}.${GLIBC_FLOOR}` : triple
  const what = [
    'rustc',
    '--lib',
    '--crate-type',
    'cdylib',
    '--release',
    '--features',
    'node',
    '--target',
    versioned,
  ]
  build(what, libc === 'musl' ? '-C target-feature=-crt-static' : '')
}

function build(what, flags) {
  run(zigbuild, [...what, '--target-dir', targetDirectory, '--quiet'], {
    env: environment(flags),
    quiet: true,
  })
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
