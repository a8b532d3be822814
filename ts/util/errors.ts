// Creates errors of the same form as Node's errors, so that callers of child_process need no
// change.

import { getSystemErrorName, inspect } from 'node:util'

type ErrorClass = new (message: string) => Error

/** An error with a `code`, printed as Node prints its own: `TypeError [ERR_…]: …`. */
export function codedError(Base: ErrorClass, code: string, message: string): NodeJS.ErrnoException {
  const error: NodeJS.ErrnoException = new Base(message)
  error.code = code
  Object.defineProperty(error, 'toString', {
    value: () => `${error.name} [${code}]: ${error.message}`,
    enumerable: false,
    writable: true,
    configurable: true,
  })
  return error
}

export function invalidType(name: string, expected: string, actual: unknown): Error {
  return codedError(
    TypeError,
    'ERR_INVALID_ARG_TYPE',
    `The "${name}" ${kind(name)} must be ${expected}. Received ${received(actual)}`,
  )
}

export function invalidValue(name: string, value: unknown, reason = 'is invalid'): Error {
  return codedError(
    TypeError,
    'ERR_INVALID_ARG_VALUE',
    `The ${kind(name)} '${name}' ${reason}. Received ${shown(value)}`,
  )
}

export function outOfRange(name: string, range: string, value: unknown): Error {
  const message = `The value of "${name}" is out of range. It must be ${range}. Received ${shown(value)}`
  return codedError(RangeError, 'ERR_OUT_OF_RANGE', message)
}

/** A value that a caller passed could not be read: a getter or a proxy threw `cause`. */
export function unreadable(name: string, cause: unknown): Error {
  const why = cause instanceof Error ? cause.message : shown(cause)
  const message = `The ${kind(name)} '${name}' cannot be read: ${why}`
  return Object.assign(codedError(TypeError, 'ERR_INVALID_ARG_VALUE', message), { cause })
}

/** Returns a value as text for a message. Inspecting a value can throw. */
export function shown(value: unknown): string {
  try {
    return inspect(value).slice(0, 128)
  } catch {
    return `a value of type ${typeof value} that cannot be shown`
  }
}

export function unknownSignal(signal: unknown): Error {
  return codedError(TypeError, 'ERR_UNKNOWN_SIGNAL', `Unknown signal: ${String(signal)}`)
}

/**
 * Returns the error that Node creates for a failed system call.
 *
 * The argument `errno` is positive, `error.errno` is negative. On Windows `errno` is a libuv error
 * number: `os.constants.errno` has the numbers of the C library.
 */
export function errnoError(errno: number, syscall: string): NodeJS.ErrnoException {
  const code = getSystemErrorName(-errno)
  const error: NodeJS.ErrnoException = new Error(`${syscall} ${code}`)
  return Object.assign(error, { errno: -errno, code, syscall })
}

/** Returns the error of an operation whose AbortSignal fired. */
export function abortError(cause: unknown): Error {
  const error: NodeJS.ErrnoException = new Error('The operation was aborted', { cause })
  error.name = 'AbortError'
  error.code = 'ABORT_ERR'
  return error
}

const kind = (name: string) => (name.includes('.') ? 'property' : 'argument')

function received(value: unknown): string {
  try {
    return kindOf(value)
  } catch {
    // A proxy or a getter named `constructor` threw.
    return shown(value)
  }
}

function kindOf(value: unknown): string {
  if (value == null) return String(value)
  if (typeof value === 'function') return `function ${value.name}`
  if (typeof value === 'object') {
    return value.constructor?.name
      ? `an instance of ${value.constructor.name}`
      : inspect(value, { depth: -1 })
  }
  return `type ${typeof value} (${inspect(value).slice(0, 28)})`
}
