// Files in a folder in which others may be able to write, read with care.

import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'

/** Not there on Windows. */
const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants

/** A plain file, and nothing else that may be in its place: a FIFO would hold us up for ever. Throws if there is none. */
export function openFile(path: string): number {
  const fd = openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  if (fstatSync(fd).isFile()) return fd
  closeSync(fd)
  throw new Error(`${path} is not a plain file`)
}

export function readFile(path: string): string {
  const fd = openFile(path)
  try {
    return readFileSync(fd, 'utf8')
  } finally {
    closeSync(fd)
  }
}
