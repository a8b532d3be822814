// Names an invalid `cwd` in the error of a failed start.

import { accessSync, constants, statSync } from 'node:fs'

interface Start {
  readonly cwd: string | undefined
  /** A drop-in for child_process started the command, and keeps Node's messages. */
  readonly isDropIn: boolean
}

/**
 * Adds the directory to the message if it is the cause of the error.
 *
 * The kernel returns the same error for a missing directory and a missing command, so a bare
 * `spawn sh ENOENT` blames the command.
 */
export function nameBadDirectory(error: NodeJS.ErrnoException, { cwd, isDropIn }: Start): void {
  if (cwd === undefined || isDropIn || !['ENOENT', 'ENOTDIR', 'EACCES'].includes(error.code ?? '')) return
  const problem = problemOf(cwd)
  if (problem !== undefined) error.message += `: options.cwd ${JSON.stringify(cwd)} ${problem}`
}

function problemOf(cwd: string): string | undefined {
  try {
    if (!statSync(cwd).isDirectory()) return 'is not a directory'
    accessSync(cwd, constants.X_OK)
    return undefined
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return 'does not exist'
    return code === 'ENOTDIR' ? 'is not a directory' : `cannot be used (${message})`
  }
}
