// Which npm package contains the native addon for a system, and the error message if it is missing.

/** How to keep a bundler from copying the package, for each bundler. */
const BUNDLER_OPTIONS =
  "--external:spawn-owned (esbuild), external: ['spawn-owned'] (tsup, Rollup), ssr: { external: ['spawn-owned'] } (Vite), " +
  "externals: { 'spawn-owned': 'commonjs spawn-owned' } (webpack), serverExternalPackages: ['spawn-owned'] (Next.js)"

/** The systems with a package. scripts/targets/list.mjs lists its content. */
const PLATFORMS = [
  'linux-x64-gnu',
  'linux-x64-musl',
  'linux-arm64-gnu',
  'linux-arm64-musl',
  'darwin-x64',
  'darwin-arm64',
  'win32-x64',
  'win32-arm64',
]

export type Libc = 'glibc' | 'musl'

export interface InstalledPackage {
  readonly name: string
  readonly directory: string
}

/** Returns the packages for a system, on Linux one per libc. */
export function platformPackages(platform: string, arch: string): string[] {
  return PLATFORMS.filter((name) => `${name}-`.startsWith(`${platform}-${arch}-`)).map(
    (name) => `@spawn-owned/${name}`,
  )
}

/** Returns the packages, those for this libc first. */
export function byLibc<T extends { readonly name: string }>(
  packages: readonly T[],
  libc: Libc | undefined,
): T[] {
  const fits = ({ name }: T) => name.endsWith(libc === 'musl' ? '-musl' : '-gnu')
  return packages.toSorted((one, other) => Number(fits(other)) - Number(fits(one)))
}

/**
 * Returns the libc of this process: undefined outside Linux, and if the runtime does not report it.
 *
 * Takes a few milliseconds.
 */
export function currentLibc(): Libc | undefined {
  if (process.platform !== 'linux') return undefined
  try {
    const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } }
    return header === undefined ? undefined : header.glibcVersionRuntime ? 'glibc' : 'musl'
  } catch {
    return undefined
  }
}

/**
 * Returns the directory in which Electron can execute what lies in this one.
 *
 * The system cannot load or execute a file inside an asar archive. Electron's packagers put such
 * files into a folder beside it.
 */
export function outsideAsar(directory: string): string {
  return directory.replace(/\.asar(?=[\\/])/, '.asar.unpacked')
}

/**
 * Returns what to do if the package's files are not where its installation has put them, or ''.
 *
 * `file` is the file with this code. `bundled`: whether it is not in the package any more.
 */
export function movedHint(file: string, bundled: boolean): string {
  if (/\.asar[\\/]/.test(file))
    return (
      " Electron cannot execute files inside an asar archive. Unpack the native addon: asarUnpack: ['**/node_modules/@spawn-owned/**'] " +
      "(electron-builder), asar: { unpackDir: '**/node_modules/@spawn-owned/**' } (Electron Forge)."
    )
  if (!bundled) return ''
  return ` A bundler has copied spawn-owned into ${file}. Exclude it from the bundle, and install it beside the bundle: ${BUNDLER_OPTIONS}.`
}

/** Returns the error message. `found` are the packages that are installed but do not load. */
export function notInstalledMessage(
  platform: string,
  arch: string,
  libc: Libc | undefined,
  found: readonly string[],
): string {
  const system = `${platform} ${arch}${libc === undefined ? '' : ` (${libc})`}`
  const candidates = platformPackages(platform, arch).map((name) => ({ name }))
  const wanted = byLibc(candidates, libc)[0]?.name
  if (wanted === undefined)
    return `spawn-owned has no native addon for ${system}. It supports ${PLATFORMS.join(', ')}.`
  const build = 'or run "npm run build" in a checkout'
  if (found.includes(wanted))
    return `The native addon of spawn-owned for ${system}, ${wanted}, does not load: see the error's cause. Reinstall it, ${build}.`
  const others =
    found.length === 0
      ? ''
      : ` Installed is ${found.join(', ')}: was node_modules copied from another system?`
  return (
    `The native addon of spawn-owned for ${system} is not installed.${others} Install ${wanted}: reinstall spawn-owned on this system ` +
    `without --omit=optional (--no-optional), ${build}.`
  )
}
