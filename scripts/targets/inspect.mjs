// Inspects the build for a Linux target: whether it keeps the promises of its package.
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { checkAddon, checkKeeper, megabytes } from './check.mjs'
import { readElf } from './elf.mjs'

/** `summary` as text, and `complaints`. */
export function inspect(target, folder) {
  const [addon, keeper] = target.files.map((file) => join(folder, file))
  const elf = readElf(addon)
  const sizes = [addon, keeper].map((file) => `${megabytes(statSync(file).size)} MB`)
  const libc = target.libc === 'glibc' ? `glibc ${elf.glibc ?? 'any'}` : 'musl'
  return {
    summary: `addon ${sizes[0]} (${libc}), static keeper ${sizes[1]}`,
    complaints: [...checkAddon(target, elf), ...checkKeeper(target, readElf(keeper))],
  }
}
