// Every platform with a package in npm/: its files and its build target. Other lists are checked
// against this one.

const POSIX = ['spawn-owned.node', 'spawn-owned-keeper']
/** On Windows the keeper program only creates IPC channels; runs do not need it. */
const WINDOWS = ['spawn-owned.node', 'spawn-owned-keeper.exe']

/**
 * The newest glibc that an addon may need. Node's own builds need 2.28 since Node 18, so a system
 * that runs Node can load the addon.
 */
export const GLIBC_FLOOR = '2.17'

/** The maximum installed size of one platform with the main package, in bytes. */
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

/** Targets that `npm run build:targets` builds, on any Linux. */
export const linuxTargets = targets.filter(({ os }) => os === 'linux')

function linux(cpu, libc, machine) {
  return {
    platform: `linux-${cpu}-${libc}`,
    os: 'linux',
    cpu,
    libc: libc === 'gnu' ? 'glibc' : libc,
    triple: `${machine}-unknown-linux-${libc}`,
    // One for both C libraries: it is static.
    keeperTriple: `${machine}-unknown-linux-musl`,
    files: POSIX,
  }
}

/** The name of the package on npm. */
export const packageName = ({ platform }) => `@spawn-owned/${platform}`

/** The target of this machine. */
export function thisTarget() {
  const libc = process.platform === 'linux' ? thisLibc() : undefined
  return targets.find(
    (target) => target.os === process.platform && target.cpu === process.arch && target.libc === libc,
  )
}

function thisLibc() {
  return process.report.getReport().header.glibcVersionRuntime ? 'glibc' : 'musl'
}
