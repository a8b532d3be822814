// What links for other Linux systems than this one: Zig's linker, which has the symbols of every glibc and of musl, and Rust's standard
// library for each target. Zig and its driver for Cargo are taken from PyPI, which has them for every system, and kept below target/.
import { spawnSync } from 'node:child_process'
import { delimiter, join } from 'node:path'
import { root, run, say } from '../tools.mjs'

export const made = join(root, 'target', 'targets')
const venv = join(made, 'venv')
const tools = join(venv, 'bin')

// Pinned: what is published is to be built twice in the same way.
const packages = ['ziglang==0.17.0', 'cargo-zigbuild==0.24.0']

export function installToolchain(triples) {
  installZig()
  installStandardLibraries(triples)
}

function installZig() {
  if (spawnSync(join(tools, 'cargo-zigbuild'), ['--version']).status === 0) return
  say('Installing Zig (about half a minute)')
  run('python3', ['-m', 'venv', '--clear', venv], { quiet: true })
  run(join(tools, 'pip'), ['install', '--quiet', ...packages], { quiet: true })
}

function installStandardLibraries(triples) {
  const { stdout = '', error } = spawnSync('rustup', ['target', 'list', '--installed'], { encoding: 'utf8' })
  if (error) {
    console.error('rustup is needed to build for other systems (https://rustup.rs).')
    process.exit(1)
  }
  const missing = triples.filter((triple) => !stdout.split('\n').includes(triple))
  if (missing.length > 0) run('rustup', ['target', 'add', ...missing], { quiet: true })
  // Of which the keepers' is built.
  run('rustup', ['component', 'add', 'rust-src'], { quiet: true })
}

/** Its folder is of its own: what Cargo has compiled for this machine is not compiled again whenever the linker changes. */
export const targetDirectory = join(made, 'cargo')

export const zigbuild = join(tools, 'cargo-zigbuild')

/** `flags`: the compiler's, for each triple. Zig is looked for in the PATH. */
export function environment(flags) {
  const env = { ...process.env, PATH: `${tools}${delimiter}${process.env.PATH}` }
  // They would take the place of those for a target.
  delete env.RUSTFLAGS
  for (const [triple, words] of Object.entries(flags))
    env[`CARGO_TARGET_${triple.toUpperCase().replaceAll('-', '_')}_RUSTFLAGS`] = words
  return env
}
