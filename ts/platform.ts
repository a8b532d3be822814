// Which package holds the native part for a system, and what to say if it is not there.

/** Systems that have one; scripts/targets/list.mjs says what is in it. */
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

/** The packages that may fit, on Linux one for each libc. */
export function platformPackages(platform: string, arch: string): string[] {
  return PLATFORMS.filter((name) => `${name}-`.startsWith(`${platform}-${arch}-`)).map(
    (name) => `@spawn-owned/${name}`,
  )
}

/** Those that fit this libc come first. */
export function byLibc<T extends { readonly name: string }>(
  packages: readonly T[],
  libc: Libc | undefined,
): T[] {
  const fits = ({ name }: T) => name.endsWith(libc === 'musl' ? '-musl' : '-gnu')
  return packages.toSorted((one, other) => Number(fits(other)) - Number(fits(one)))
}

/** Undefined where there is only one, and where the runtime does not tell. Takes a few milliseconds. */
export function currentLibc(): Libc | undefined {
  if (process.platform !== 'linux') return undefined
  try {
    const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } }
    return header === undefined ? undefined : header.glibcVersionRuntime ? 'glibc' : 'musl'
  } catch {
    return undefined
  }
}

/** `found`: the packages that are installed, although they do not load. */
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
    return `spawn-owned has no native part for ${system}. There is one for ${PLATFORMS.join(', ')}.`
  const build = 'or run "npm run build" in a checkout'
  if (found.includes(wanted))
    return `spawn-owned's native part for ${system}, ${wanted}, does not load; the cause says why. Install it again, ${build}.`
  const others =
    found.length === 0
      ? ''
      : ` Installed is ${found.join(', ')}: was node_modules copied from another system?`
  return (
    `spawn-owned's native part for ${system} is not installed.${others} Install ${wanted}: reinstall spawn-owned on this system ` +
    `without --omit=optional (--no-optional), ${build}.`
  )
}
