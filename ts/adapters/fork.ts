// fork with an owned run: starts a Node process with an IPC channel, as Node does.

import { fileURLToPath } from 'node:url'
import type { OwnedProcess, SpawnOwnedOptions } from '../../index.js'
import { spawnOwned } from '../index.js'
import { codedError, invalidType, invalidValue } from '../util/errors.js'
import { checkNoNul, checkObject, ownOptions } from '../util/validation.js'
import { keepDescendants } from './keep-descendants.js'

interface ForkOptions extends SpawnOwnedOptions {
  execPath?: string
  execArgv?: readonly string[]
  silent?: boolean
}

export function fork(modulePath: unknown, args?: unknown, options?: unknown): OwnedProcess {
  const path = checkPath(modulePath)
  const { rest, given } = readArguments(args, options)
  const execPath = given.execPath || process.execPath
  checkNoNul(String(execPath), 'options.execPath')
  const command = [...nodeArguments(given.execArgv), path, ...rest]
  const complete = keepDescendants({ ...given, shell: false, stdio: withChannel(given) })
  return spawnOwned(execPath, command as string[], complete)
}

function checkPath(modulePath: unknown): unknown {
  const path = modulePath instanceof URL ? fileURLToPath(modulePath) : modulePath
  if (typeof path !== 'string' && !(path instanceof Uint8Array))
    throw invalidType('modulePath', 'of type string or an instance of Buffer or URL', modulePath)
  if (typeof path === 'string' ? path.includes('\0') : path.includes(0))
    throw invalidValue('modulePath', path, 'must be a string, Uint8Array, or URL without null bytes')
  return path
}

/** Reads the arguments. `args` is optional. */
function readArguments(args: unknown, options: unknown): { rest: readonly unknown[]; given: ForkOptions } {
  const isOptions = typeof args === 'object' && args !== null && !Array.isArray(args)
  if (args != null && !isOptions && !Array.isArray(args))
    throw invalidType('args', 'an instance of Array', args)
  const given = isOptions ? args : options
  if (given != null) checkObject(given, 'options')
  return { rest: Array.isArray(args) ? args : [], given: ownOptions(given) }
}

/**
 * Returns the arguments for Node: those of this process, unless others are given.
 *
 * Without the code of `--eval`: the child would run it again, and fork again.
 */
function nodeArguments(given: readonly string[] | undefined): readonly string[] {
  const execArgv = given || process.execArgv
  for (const [index, arg] of execArgv.entries()) checkNoNul(String(arg), `options.execArgv[${index}]`)
  const { _eval: code } = process as { _eval?: string }
  const at = execArgv === process.execArgv && code != null ? execArgv.lastIndexOf(code) : -1
  return at > 0 ? execArgv.filter((_, index) => index !== at - 1 && index !== at) : execArgv
}

function withChannel({ stdio, silent }: ForkOptions): SpawnOwnedOptions['stdio'] {
  if (Array.isArray(stdio)) {
    if (stdio.includes('ipc')) return stdio
    throw codedError(
      Error,
      'ERR_CHILD_PROCESS_IPC_REQUIRED',
      "Forked processes must have an IPC channel, missing value 'ipc' in options.stdio",
    )
  }
  const form = typeof stdio === 'string' ? stdio : silent ? 'pipe' : 'inherit'
  if (!['ignore', 'overlapped', 'pipe', 'inherit'].includes(form)) throw invalidValue('stdio', form)
  return [form, form, form, 'ipc']
}
