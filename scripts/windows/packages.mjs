// The Debian packages that build for Windows and run what was built.
import * as debian from '../debian.mjs'

// rustc-web and rust-web-src are one version: the standard library for Windows is built from source.
const needed = ['rustc-web', 'cargo-web', 'rust-web-src', 'gcc-mingw-w64-x86-64', 'wine64', 'wine']

export const installPackages = () => debian.installPackages('The Windows tests', needed)
