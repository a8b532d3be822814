// How Cargo builds for macOS here: Debian's Rust builds the standard library from source, and zig, which knows Apple's system library by
// heart, links. No SDK is needed, as long as nothing but that library is.
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { installPackages } from '../debian.mjs'
import { run, say } from '../tools.mjs'
import { made } from './places.mjs'

const venv = join(made, 'venv')

/** One version of each, so that what is built tomorrow is what was built today. */
const tools = ['ziglang==0.17.0', 'cargo-zigbuild==0.24.0']

export const zigbuild = join(venv, 'bin', 'cargo-zigbuild')

/** rustc-web and rust-web-src are one version. */
export function installToolchain() {
  installPackages('The builds for macOS', ['rustc-web', 'cargo-web', 'rust-web-src'])
  if (existsSync(zigbuild)) return
  say(`Installing ${tools.join(', ')} (half a minute)`)
  run('python3', ['-m', 'venv', venv], { quiet: true })
  run(join(venv, 'bin', 'pip'), ['install', '--quiet', '--disable-pip-version-check', ...tools], {
    quiet: true,
  })
}

/** Unwinding is part of it: that is what turns a panic into a JS error. Both processors share what is built for the one we run on. */
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
    // The oldest that runs there with arm64, and with any Node that we support.
    MACOSX_DEPLOYMENT_TARGET: '11.0',
    // Debian's Rust has no tool that could do it, and zig leaves out what the debugger wants anyway.
    CARGO_PROFILE_RELEASE_STRIP: 'none',
    ...(optimized ? {} : quick),
  }
}

/** To see that it builds and links takes no optimization. */
const quick = {
  CARGO_PROFILE_RELEASE_LTO: 'off',
  CARGO_PROFILE_RELEASE_CODEGEN_UNITS: '16',
  CARGO_PROFILE_RELEASE_OPT_LEVEL: '0',
}
