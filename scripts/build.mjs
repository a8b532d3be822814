// Builds everything: the addon and the keeper into native/ (on Windows into native/win32-<arch>/),
// the TypeScript into dist/, and the .d.mts files into types/. `--quiet` prints only errors.
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { generateTypeDef } from '@napi-rs/cli'
import { bundle, bundles, evaluate } from './bundles.mjs'
import { writeEsmDeclarations, writeEsmEntries } from './esm-entries.mjs'
import { buildExamples } from './examples.mjs'
import { bin, isMacos, isWindows, root, run } from './tools.mjs'

const quiet = process.argv.includes('--quiet') ? ['--quiet'] : []
const native = join(root, 'native')
const keeper = isWindows ? 'spawn-owned-keeper.exe' : 'spawn-owned-keeper'
/**
 * The folder that ts/native/load-addon.ts searches first. scripts/windows builds into the same folder.
 */
const installed = isWindows ? join(native, `win32-${process.arch}`) : native
mkdirSync(installed, { recursive: true })

await buildAddon()
buildKeeper()
await buildTypeScript()

/**
 * Builds the addon and its type declarations.
 *
 * `napi build` builds the crate as an addon and as a library, and then Cargo does not optimize
 * across crates. The addon alone is a fifth smaller. The macros of napi write the types during
 * compilation, into a folder beside the compiled files.
 */
async function buildAddon() {
  const target = hostTriple()
  const types = join(root, 'target', 'binding-types')
  mkdirSync(types, { recursive: true })
  const env = { ...process.env, NAPI_TYPE_DEF_TMP_FOLDER: types }
  // The folder of the types can be deleted while the compiled files remain. Then compile again.
  if (readdirSync(types).length === 0) env.NAPI_FORCE_BUILD_SPAWN_OWNED = String(Date.now())
  const features = ['--release', '--features', 'node', '--target', target]
  run('cargo', ['rustc', '--lib', '--crate-type', 'cdylib', ...features, ...quiet], { env })
  const { dts } = await generateTypeDef({ typeDefDir: types, cwd: root })
  // A comment inside a macro of Rust comes out as a raw string.
  writeFileSync(join(native, 'binding.d.ts'), dts.replace(/^( *(?:\/\*\*|\*)) r" /gm, '$1 '))
  install(join(root, 'target', target, 'release', library()), 'spawn-owned.node')
}

/** The file name that Cargo gives to the library. */
function library() {
  if (isWindows) return 'spawn_owned.dll'
  return isMacos ? 'libspawn_owned.dylib' : 'libspawn_owned.so'
}

/** Installs a file. It replaces the old one, so that running processes keep theirs. */
function install(built, name) {
  const [fresh, place] = [join(installed, `.${name}-${process.pid}`), join(installed, name)]
  copyFileSync(built, fresh)
  chmodSync(fresh, 0o755)
  // Windows does not replace a file that a process has loaded, but allows to rename it.
  if (isWindows && existsSync(place)) moveAway(place)
  renameSync(fresh, place)
}

function moveAway(place) {
  const old = `${place}.old-${process.pid}`
  renameSync(place, old)
  try {
    rmSync(old)
  } catch {
    // A process has the file loaded. Leave it.
  }
}

/**
 * Builds the keeper, statically linked where the C library allows it (not on macOS).
 *
 * A static keeper starts faster, and one file works with every libc. The explicit target makes the
 * flags apply to the program only, not to build scripts and macros.
 */
function buildKeeper() {
  const target = keeperTarget()
  // A fixed address has no advantage on Windows.
  const flags = ['-C target-feature=+crt-static', ...(isWindows ? [] : ['-C relocation-model=static'])]
  const args = ['build', '--profile', 'keeper', '--bin', 'spawn-owned-keeper', '--target', target, ...quiet]
  const env = { ...process.env, RUSTFLAGS: [process.env.RUSTFLAGS ?? '', ...flags].join(' ').trim() }
  // Ignore the output: a warning that a static library cannot be an addon. The second try prints
  // errors.
  const isLinked = !isMacos && spawnSync('cargo', args, { cwd: root, env, stdio: 'ignore' }).status === 0
  if (!isLinked) {
    if (!isMacos) {
      console.warn(
        'The keeper cannot be linked statically on this system. Building it with the shared C library instead.',
      )
    }
    run('cargo', args)
  }
  install(join(root, 'target', target, 'keeper', keeper), keeper)
}

/**
 * The target of the keeper: musl if it can be installed (half the size), else the host's C library.
 */
function keeperTarget() {
  const host = hostTriple()
  if (!host.endsWith('-linux-gnu')) return host
  const musl = host.replace(/-linux-gnu$/, '-linux-musl')
  const rustup = (...args) => spawnSync('rustup', args, { encoding: 'utf8', timeout: 120_000 })
  const { stdout } = rustup('target', 'list', '--installed')
  if (stdout?.split('\n').includes(musl)) return musl
  return rustup('target', 'add', musl).status === 0 ? musl : host
}

async function buildTypeScript() {
  run(process.execPath, [bin('tsc'), '-p', 'ts'])
  for (const name of bundles.keys()) await bundle(name, 'dist')
  writeEsmEntries(createRequire(import.meta.url), join(root, 'dist'))
  writeEsmDeclarations(join(root, 'types'))
  await buildExamples()
  await finishCommandLine()
}

/** Makes the command line executable, and writes its man page, which has the same text as its help. */
async function finishCommandLine() {
  chmodSync(join(root, 'dist', 'cli.js'), 0o755)
  const { manPage } = await evaluate(join('cli', 'man-page'))
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  writeFileSync(join(root, 'dist', 'spawn-owned.1'), `${manPage(version).join('\n')}\n`)
}

function hostTriple() {
  const version = spawnSync('rustc', ['-vV'], { encoding: 'utf8' })
  const triple = /^host: (.+)$/m.exec(version.stdout ?? '')?.[1]
  if (!triple) throw new Error('rustc was not found. Install Rust 1.89 or newer (https://rustup.rs)')
  return triple
}
