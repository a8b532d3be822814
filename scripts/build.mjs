// Builds everything: the addon and the keeper into native/ (on Windows into native/win32-<arch>/), the TypeScript into dist/.
// `--quiet` prints only what goes wrong.
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { generateTypeDef } from '@napi-rs/cli'
import { bundle, bundles } from './bundles.mjs'
import { writeEsmEntries } from './esm-entries.mjs'
import { bin, isMacos, isWindows, root, run } from './tools.mjs'

const quiet = process.argv.includes('--quiet') ? ['--quiet'] : []
const native = join(root, 'native')
const keeper = isWindows ? 'spawn-owned-keeper.exe' : 'spawn-owned-keeper'
/** Where ts/native.ts looks first. What is built for Windows elsewhere lies there, too (scripts/windows). */
const installed = isWindows ? join(native, `win32-${process.arch}`) : native
mkdirSync(installed, { recursive: true })

await buildAddon()
buildKeeper()
buildTypeScript()

/**
 * Not `napi build`: that has the crate built as an addon and as a library at once, and Cargo optimizes nothing across crates then.
 * As an addon alone it is a fifth smaller. The types are written by the macros while it is compiled, into a folder that goes with
 * what was compiled.
 */
async function buildAddon() {
  const target = hostTriple()
  const types = join(root, 'target', 'binding-types')
  mkdirSync(types, { recursive: true })
  const env = { ...process.env, NAPI_TYPE_DEF_TMP_FOLDER: types }
  // Somebody may have deleted the one without the other.
  if (readdirSync(types).length === 0) env.NAPI_FORCE_BUILD_SPAWN_OWNED = String(Date.now())
  const features = ['--release', '--features', 'node', '--target', target]
  run('cargo', ['rustc', '--lib', '--crate-type', 'cdylib', ...features, ...quiet], { env })
  const { dts } = await generateTypeDef({ typeDefDir: types, cwd: root })
  writeFileSync(join(native, 'binding.d.ts'), dts)
  install(join(root, 'target', target, 'release', library()), 'spawn-owned.node')
}

/** What Cargo calls it. */
function library() {
  if (isWindows) return 'spawn_owned.dll'
  return isMacos ? 'libspawn_owned.dylib' : 'libspawn_owned.so'
}

/** Replaced, not overwritten: who runs it keeps its own file. */
function install(built, name) {
  const [fresh, place] = [join(installed, `.${name}-${process.pid}`), join(installed, name)]
  copyFileSync(built, fresh)
  chmodSync(fresh, 0o755)
  // Windows does not replace what somebody has loaded, but lets it be moved away.
  if (isWindows && existsSync(place)) moveAway(place)
  renameSync(fresh, place)
}

function moveAway(place) {
  const old = `${place}.old-${process.pid}`
  renameSync(place, old)
  try {
    rmSync(old)
  } catch {
    // Somebody has it loaded. It is of no use to anybody else.
  }
}

/**
 * The keeper is linked statically where the C library allows it (macOS never does): it starts faster, and one file serves every libc.
 * Flags that would apply to build scripts and macros too need an explicit target to apply to the program only.
 */
function buildKeeper() {
  const target = keeperTarget()
  // An address that is fixed is of no use there.
  const flags = ['-C target-feature=+crt-static', ...(isWindows ? [] : ['-C relocation-model=static'])]
  const args = ['build', '--profile', 'keeper', '--bin', 'spawn-owned-keeper', '--target', target, ...quiet]
  const env = { ...process.env, RUSTFLAGS: [process.env.RUSTFLAGS ?? '', ...flags].join(' ').trim() }
  // Its one warning, that a static library cannot be an addon too, is of no interest; its errors show in the second try.
  const isLinked = !isMacos && spawnSync('cargo', args, { cwd: root, env, stdio: 'ignore' }).status === 0
  if (!isLinked) {
    if (!isMacos) {
      console.warn(
        'The keeper cannot be linked statically here; building it with the shared C library instead.',
      )
    }
    run('cargo', args)
  }
  install(join(root, 'target', target, 'keeper', keeper), keeper)
}

/** With musl it is half the size. If that cannot be had, the C library that is here does as well. */
function keeperTarget() {
  const host = hostTriple()
  if (!host.endsWith('-linux-gnu')) return host
  const musl = host.replace(/-linux-gnu$/, '-linux-musl')
  const rustup = (...args) => spawnSync('rustup', args, { encoding: 'utf8', timeout: 120_000 })
  const { stdout } = rustup('target', 'list', '--installed')
  if (stdout?.split('\n').includes(musl)) return musl
  return rustup('target', 'add', musl).status === 0 ? musl : host
}

function buildTypeScript() {
  run(process.execPath, [bin('tsc'), '-p', 'ts'])
  for (const name of bundles.keys()) bundle(name, 'dist')
  writeEsmEntries(createRequire(import.meta.url), join(root, 'dist'))
  finishCommandLine()
}

/** Executable, and its man page, which is made of the same words as its help. */
function finishCommandLine() {
  const program = join(root, 'dist', 'cli.js')
  chmodSync(program, 0o755)
  const { stdout } = spawnSync(process.execPath, [program, '--man-page'], { encoding: 'utf8' })
  writeFileSync(join(root, 'dist', 'spawn-owned.1'), stdout)
}

function hostTriple() {
  const version = spawnSync('rustc', ['-vV'], { encoding: 'utf8' })
  const triple = /^host: (.+)$/m.exec(version.stdout ?? '')?.[1]
  if (!triple)
    throw new Error('rustc is needed to build spawn-owned; install Rust 1.89 or newer (https://rustup.rs)')
  return triple
}
