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

/** Returns why it cannot be had, if so: what is not on a machine has to be fetched. */
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
  if (error) return 'rustup is needed for other systems (https://rustup.rs)'
  const missing = triples.filter((triple) => !stdout.split('\n').includes(triple))
  const fetched = [
    ['target', 'add', ...missing],
    // Of which the keepers' library is built.
    ['component', 'add', 'rust-src'],
  ].map((args) => args.length < 3 || spawnSync('rustup', args, { timeout: 300_000 }).status === 0)
  return fetched.includes(false) ? "rustup cannot fetch Rust's standard library here" : undefined
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
