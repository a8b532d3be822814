// Reads files in a folder in which other users may be able to write.

import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'

/** Windows does not have the last two. */
const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants

/**
 * Opens a regular file. Throws if it does not exist, or is no regular file.
 *
 * Another user can put a FIFO or a symbolic link in its place. To open a FIFO could block forever.
 */
export function openFile(path: string): number {
  const fd = openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  if (fstatSync(fd).isFile()) return fd
  closeSync(fd)
  throw new Error(`${path} is not a regular file`)
}

export function readFile(path: string): string {
  const fd = openFile(path)
  try {
    return readFileSync(fd, 'utf8')
  } finally {
    closeSync(fd)
  }
}
