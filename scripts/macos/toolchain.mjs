// How Cargo builds for macOS on Linux: Debian's Rust builds the standard library from source, and
// zig, which contains Apple's system library stubs, links. No SDK is needed, as long as only that
// library is used.
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { installPackages } from '../debian.mjs'
import { run, say } from '../tools.mjs'
import { made } from './places.mjs'

const venv = join(made, 'venv')

/** Fixed versions, so that builds are reproducible. */
const tools = ['ziglang==0.17.0', 'cargo-zigbuild==0.24.0']

export const zigbuild = join(venv, 'bin', 'cargo-zigbuild')

/** rustc-web and rust-web-src have the same version. */
export function installToolchain() {
  installPackages('The builds for macOS', ['rustc-web', 'cargo-web', 'rust-web-src'])
  if (existsSync(zigbuild)) return
  say(`Installing ${tools.join(', ')} (half a minute)`)
  run('python3', ['-m', 'venv', venv], { quiet: true })
  run(join(venv, 'bin', 'pip'), ['install', '--quiet', '--disable-pip-version-check', ...tools], {
    quiet: true,
  })
}

/**
 * With unwinding, which turns a panic into a JS error. Both targets share what is built for the
 * host.
 */
export const target = (triple) => [
  '--target',
  triple,
  '-Zbuild-std=std,panic_unwind',
  '--target-dir',
  join(made, 'cargo'),
]

export function cargoEnvironment({ optimized }) {
  return {
    ...process.env,
    PATH: [join(venv, 'bin'), process.env.PATH].join(delimiter),
    CARGO: '/usr/bin/cargo',
    RUSTC: '/usr/bin/rustc',
    RUSTDOC: '/usr/bin/rustdoc',
    // Allows -Zbuild-std.
    RUSTC_BOOTSTRAP: '1',
    // The oldest version that runs on arm64 and with every supported Node.
    MACOSX_DEPLOYMENT_TARGET: '11.0',
    // Debian's Rust has no strip tool for Mach-O, and zig leaves out debug information anyway.
    CARGO_PROFILE_RELEASE_STRIP: 'none',
    ...(optimized ? {} : quick),
  }
}

/** A build that only checks compiling and linking needs no optimization. */
const quick = {
  CARGO_PROFILE_RELEASE_LTO: 'off',
  CARGO_PROFILE_RELEASE_CODEGEN_UNITS: '16',
  CARGO_PROFILE_RELEASE_OPT_LEVEL: '0',
}
