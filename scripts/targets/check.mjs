// Whether a build for Linux keeps the promises of its package. Pure: facts in, complaints out.
import { byVersion } from './elf.mjs'
import { GLIBC_FLOOR, INSTALLED_SIZE } from './list.mjs'

const MACHINES = { x64: 'X86-64', arm64: 'AArch64' }

/** Libraries that are part of a C library. Others may be missing on the user's machine. */
const LIBRARIES = {
  glibc:
    /^(libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|libm\.so\.6|librt\.so\.1|libgcc_s\.so\.1|ld-linux-.*)$/,
  musl: /^(libc\.so|libc\.musl-.*\.so\.1|libgcc_s\.so\.1)$/,
}

/** Checks an addon. `elf` is the result of `readElf`. */
export function checkAddon({ cpu, libc }, elf) {
  const strange = elf.needed.filter((library) => !LIBRARIES[libc].test(library))
  return [
    elf.machine !== MACHINES[cpu] && `the addon is for ${elf.machine}, not for ${MACHINES[cpu]}`,
    strange.length > 0 && `the addon needs ${strange.join(', ')}, which is not a part of ${libc}`,
    libc === 'musl' && elf.glibc !== undefined && `the addon for musl has symbols of glibc ${elf.glibc}`,
    libc === 'glibc' &&
      elf.glibc !== undefined &&
      byVersion(elf.glibc, GLIBC_FLOOR) > 0 &&
      `the addon needs glibc ${elf.glibc}, and ${GLIBC_FLOOR} is promised`,
  ].filter(Boolean)
}

/** Checks a keeper, which works with every libc because it needs none. */
export function checkKeeper({ cpu }, elf) {
  return [
    elf.machine !== MACHINES[cpu] && `the keeper is for ${elf.machine}, not for ${MACHINES[cpu]}`,
    elf.interpreter !== undefined && `the keeper is not static: it asks for ${elf.interpreter}`,
    elf.needed.length > 0 && `the keeper is not static: it needs ${elf.needed.join(', ')}`,
  ].filter(Boolean)
}

/** Checks the installed size on one platform. */
export function checkSize(bytes) {
  return bytes > INSTALLED_SIZE
    ? [`${megabytes(bytes)} MB are installed, and ${megabytes(INSTALLED_SIZE)} MB are promised`]
    : []
}

export const megabytes = (bytes) => (bytes / 1e6).toFixed(2)
