// How Cargo builds for Windows on Linux.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { run } from '../tools.mjs'
import { made, triple } from './places.mjs'

/**
 * Debian's Cargo, which has the sources of the standard library. Another one in the PATH, such as
 * rustup's, has no standard library for Windows.
 */
export const cargo = '/usr/bin/cargo'

/** With unwinding, which turns a panic into a JS error. */
export const target = [
  '--target',
  triple,
  '-Zbuild-std=std,panic_unwind',
  '--target-dir',
  join(made, 'cargo'),
]

export function cargoEnvironment() {
  return {
    ...process.env,
    RUSTC: '/usr/bin/rustc',
    RUSTDOC: '/usr/bin/rustdoc',
    // Allows -Zbuild-std.
    RUSTC_BOOTSTRAP: '1',
    CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER: 'x86_64-w64-mingw32-gcc',
    LIBNODE_PATH: libnode(),
    // For tests the behaviour matters, not the speed, and one build of the dependencies serves all.
    CARGO_PROFILE_RELEASE_LTO: 'off',
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS: '16',
    CARGO_PROFILE_RELEASE_OPT_LEVEL: '1',
  }
}

/**
 * napi-build requires a libnode to link with. The addon needs none: it looks up Node's functions
 * when it is loaded. So an import library with a single name suffices.
 */
function libnode() {
  const folder = join(made, 'libnode')
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'libnode.dll'), '')
  const names = join(folder, 'node.def')
  writeFileSync(names, 'LIBRARY node.exe\nEXPORTS\nnapi_module_register\n')
  run('x86_64-w64-mingw32-dlltool', ['-d', names, '-l', join(folder, 'libnode.dll.a')])
  return folder
}

/** A C program or library for Windows, Unicode and with all warnings. */
export function compile(source, binary, ...flags) {
  run('x86_64-w64-mingw32-gcc', [
    '-O1',
    '-Wall',
    '-Wextra',
    '-municode',
    '-D_WIN32_WINNT=0x0A00',
    '-o',
    binary,
    source,
    ...flags,
  ])
}
