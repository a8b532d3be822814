// Every platform that has a package in npm/: what is in it, and what it is built from. Other lists are checked against this one.

const POSIX = ['spawn-owned.node', 'spawn-owned-keeper']
/** There the keeper's program only lends channels; runs need none. */
const WINDOWS = ['spawn-owned.node', 'spawn-owned-keeper.exe']

/** The newest glibc that an addon may need. Node's own builds need 2.28 since Node 18: who can run Node can load the addon. */
export const GLIBC_FLOOR = '2.17'

/** What one platform may take when it is installed, with the main package: bytes. */
export const INSTALLED_SIZE = 2_500_000

export const targets = [
  linux('x64', 'gnu', 'x86_64'),
  linux('x64', 'musl', 'x86_64'),
  linux('arm64', 'gnu', 'aarch64'),
  linux('arm64', 'musl', 'aarch64'),
  { platform: 'darwin-x64', os: 'darwin', cpu: 'x64', triple: 'x86_64-apple-darwin', files: POSIX },
  { platform: 'darwin-arm64', os: 'darwin', cpu: 'arm64', triple: 'aarch64-apple-darwin', files: POSIX },
  { platform: 'win32-x64', os: 'win32', cpu: 'x64', triple: 'x86_64-pc-windows-msvc', files: WINDOWS },
  { platform: 'win32-arm64', os: 'win32', cpu: 'arm64', triple: 'aarch64-pc-windows-msvc', files: WINDOWS },
]

/** Those that `npm run build:targets` builds, on any Linux. */
export const linuxTargets = targets.filter(({ os }) => os === 'linux')

function linux(cpu, libc, machine) {
  return {
    platform: `linux-${cpu}-${libc}`,
    os: 'linux',
    cpu,
    libc: libc === 'gnu' ? 'glibc' : libc,
    triple: `${machine}-unknown-linux-${libc}`,
    // One for both: it is static.
    keeperTriple: `${machine}-unknown-linux-musl`,
    files: POSIX,
  }
}

/** The package's name on npm. */
export const packageName = ({ platform }) => `@spawn-owned/${platform}`

/** The target for the machine that runs this. */
export function thisTarget() {
  const libc = process.platform === 'linux' ? thisLibc() : undefined
  return targets.find(
    (target) => target.os === process.platform && target.cpu === process.arch && target.libc === libc,
  )
}

function thisLibc() {
  return process.report.getReport().header.glibcVersionRuntime ? 'glibc' : 'musl'
}
