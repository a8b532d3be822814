// The linker for other Linux systems: Zig, which has the symbols of every glibc and of musl, and
// Rust's standard library for each target. Zig and cargo-zigbuild come from PyPI, which has them
// for every system, and are kept below target/.
import { spawnSync } from 'node:child_process'
import { delimiter, join } from 'node:path'
import { root, run, say } from '../tools.mjs'

export const made = join(root, 'target', 'targets')
const venv = join(made, 'venv')
const tools = join(venv, 'bin')

// Pinned, so that published builds are reproducible.
const packages = ['ziglang==0.17.0', 'cargo-zigbuild==0.24.0']

/** Installs the toolchain. Returns the reason if that is not possible. */
export function installToolchain(triples) {
  installZig()
  return installStandardLibraries(triples)
}

function installZig() {
  if (spawnSync(join(tools, 'cargo-zigbuild'), ['--version']).status === 0) return
  say('Installing Zig (about half a minute)')
  run('python3', ['-m', 'venv', '--clear', venv], { quiet: true })
  run(join(tools, 'pip'), ['install', '--quiet', ...packages], { quiet: true })
}

function installStandardLibraries(triples) {
  const { stdout = '', error } = spawnSync('rustup', ['target', 'list', '--installed'], { encoding: 'utf8' })
  if (error) return 'building for other systems needs rustup (https://rustup.rs)'
  const missing = triples.filter((triple) => !stdout.split('\n').includes(triple))
  const fetched = [
    ['target', 'add', ...missing],
    // The keepers need a standard library that is built from source.
    ['component', 'add', 'rust-src'],
  ].map((args) => args.length < 3 || spawnSync('rustup', args, { timeout: 300_000 }).status === 0)
  return fetched.includes(false) ? "rustup cannot fetch Rust's standard library on this machine" : undefined
}

/** Its own folder, so that builds for this machine are not invalidated when the linker changes. */
export const targetDirectory = join(made, 'cargo')

export const zigbuild = join(tools, 'cargo-zigbuild')

/** `flags`: compiler flags for each triple. Zig is found in the PATH. */
export function environment(flags) {
  const env = { ...process.env, PATH: `${tools}${delimiter}${process.env.PATH}` }
  // It would replace the flags of the target.
  delete env.RUSTFLAGS
  for (const [triple, words] of Object.entries(flags))
    env[`CARGO_TARGET_${triple.toUpperCase().replaceAll('-', '_')}_RUSTFLAGS`] = words
  return env
}
