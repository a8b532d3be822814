// Builds everything: the addon and the keeper into native/, the TypeScript into dist/.
// `--quiet` prints only what goes wrong.
import { spawnSync } from 'node:child_process'
import { chmodSync, copyFileSync, mkdirSync, renameSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { writeEsmEntries } from './esm-entries.mjs'
import { bin, root, run } from './tools.mjs'

const quiet = process.argv.includes('--quiet') ? ['--quiet'] : []
const native = join(root, 'native')
mkdirSync(native, { recursive: true })

buildAddon()
buildKeeper()
buildTypeScript()

function buildAddon() {
  const napi = [
    'build',
    '--release',
    '--features',
    'node',
    '--no-js',
    '--output-dir',
    'native',
    '--dts',
    'binding.d.ts',
  ]
  run(process.execPath, [bin('napi'), ...napi, '--', '--lib', ...quiet], { quiet: quiet.length > 0 })
}

/**
 * The keeper is linked statically where the C library allows it: it starts faster, and one file serves every libc.
 * Flags that would apply to build scripts and macros too need an explicit target to apply to the program only.
 */
function buildKeeper() {
  const target = keeperTarget()
  const args = ['build', '--profile', 'keeper', '--bin', 'spawn-owned-keeper', '--target', target, ...quiet]
  const env = {
    ...process.env,
    RUSTFLAGS:
      `${process.env.RUSTFLAGS ?? ''} -C target-feature=+crt-static -C relocation-model=static`.trim(),
  }
  // Its one warning, that a static library cannot be an addon too, is of no interest; its errors show in the second try.
  const linked = spawnSync('cargo', args, { cwd: root, env, stdio: 'ignore' })
  if (linked.status !== 0) {
    console.warn(
      'The keeper cannot be linked statically here; building it with the shared C library instead.',
    )
    run('cargo', args)
  }
  // Replaced, not overwritten: a keeper that runs keeps its own file.
  const built = join(root, 'target', target, 'keeper', 'spawn-owned-keeper')
  const fresh = join(native, `.keeper-${process.pid}`)
  copyFileSync(built, fresh)
  chmodSync(fresh, 0o755)
  renameSync(fresh, join(native, 'spawn-owned-keeper'))
}

/** With musl it is half the size. If that cannot be had, the C library that is here does as well. */
function keeperTarget() {
  const host = hostTriple()
  const musl = host.replace(/-linux-gnu$/, '-linux-musl')
  const rustup = (...args) => spawnSync('rustup', args, { encoding: 'utf8', timeout: 120_000 })
  const { stdout } = rustup('target', 'list', '--installed')
  if (stdout?.split('\n').includes(musl)) return musl
  return rustup('target', 'add', musl).status === 0 ? musl : host
}

/** One file per entry point: loading a dozen would take half as long again. They share one implementation, that of index. */
function buildTypeScript() {
  run(process.execPath, [bin('tsc'), '-p', 'ts'])
  const common = [
    '--bundle',
    '--platform=node',
    '--format=cjs',
    '--target=node20',
    '--minify-whitespace',
    '--minify-syntax',
    '--outdir=dist',
    '--log-level=warning',
  ]
  run(process.execPath, [bin('esbuild'), 'ts/index.ts', ...common])
  run(process.execPath, [bin('esbuild'), 'ts/child_process.ts', '--external:./index.js', ...common])
  writeEsmEntries(createRequire(import.meta.url), join(root, 'dist'))
}

function hostTriple() {
  const version = spawnSync('rustc', ['-vV'], { encoding: 'utf8' })
  const triple = /^host: (.+)$/m.exec(version.stdout ?? '')?.[1]
  if (!triple)
    throw new Error('rustc is needed to build spawn-owned; install Rust 1.89 or newer (https://rustup.rs)')
  return triple
}
