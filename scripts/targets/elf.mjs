// The properties and dependencies of an ELF file, from `readelf`.
import { execFileSync } from 'node:child_process'

/** Reads a file on disk. */
export const readElf = (file) => parseReadelf(readelf('-h', '-l', '-d', '-V', file))

/** The symbols that a library needs from the program that loads it. */
export function undefinedSymbols(file) {
  return [...readelf('--dyn-syms', file).matchAll(/ UND ([^\s@]+)/g)].map(([, name]) => name)
}

function readelf(...words) {
  const env = { ...process.env, LC_ALL: 'C' }
  return execFileSync('readelf', ['--wide', ...words], { env, encoding: 'utf8', maxBuffer: 1 << 26 })
}

/**
 * machine      `X86-64`, `AArch64`
 * interpreter  the loader of a dynamic program
 * needed       the shared libraries that it needs
 * glibc        the newest version of glibc whose symbols it needs
 */
export function parseReadelf(text) {
  const versions = [...text.matchAll(/\bGLIBC_(\d+(?:\.\d+)*)\b/g)].map(([, version]) => version)
  return {
    machine: /^\s*Machine:.*?(X86-64|AArch64)\s*$/m.exec(text)?.[1],
    interpreter: /Requesting program interpreter: ([^\]]+)\]/.exec(text)?.[1],
    needed: [...text.matchAll(/\(NEEDED\)\s+Shared library: \[([^\]]+)\]/g)].map(([, library]) => library),
    glibc: versions.toSorted(byVersion).at(-1),
  }
}

/** For sorting: 2.9 comes before 2.17. */
export function byVersion(one, other) {
  const [a, b] = [one, other].map((version) => version.split('.').map(Number))
  const at = a.findIndex((part, index) => part !== b[index])
  if (at === -1) return a.length - b.length
  return a[at] - (b[at] ?? -1)
}
