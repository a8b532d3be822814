// Errors in Node's own shapes, so that callers of child_process need not change a line.

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
    `The ${kind(name)} '${name}' ${reason}. Received ${inspect(value).slice(0, 128)}`,
  )
}

export function outOfRange(name: string, range: string, value: unknown): Error {
  const shown = inspect(value).slice(0, 128)
  const message = `The value of "${name}" is out of range. It must be ${range}. Received ${shown}`
  return codedError(RangeError, 'ERR_OUT_OF_RANGE', message)
}

export function unknownSignal(signal: unknown): Error {
  return codedError(TypeError, 'ERR_UNKNOWN_SIGNAL', `Unknown signal: ${String(signal)}`)
}

/**
 * What a failed system call looks like in Node. `errno` is positive here and negative there. On Windows the numbers are Node's own:
 * those of `os.constants.errno` are the C library's.
 */
export function errnoError(errno: number, syscall: string): NodeJS.ErrnoException {
  const code = getSystemErrorName(-errno)
  const error: NodeJS.ErrnoException = new Error(`${syscall} ${code}`)
  return Object.assign(error, { errno: -errno, code, syscall })
}

/** The error of a run whose AbortSignal fired. */
export function abortError(cause: unknown): Error {
  const error: NodeJS.ErrnoException = new Error('The operation was aborted', { cause })
  error.name = 'AbortError'
  error.code = 'ABORT_ERR'
  return error
}

const kind = (name: string) => (name.includes('.') ? 'property' : 'argument')

function received(value: unknown): string {
  if (value == null) return String(value)
  if (typeof value === 'function') return `function ${value.name}`
  if (typeof value === 'object') {
    return value.constructor?.name
      ? `an instance of ${value.constructor.name}`
      : inspect(value, { depth: -1 })
  }
  return `type ${typeof value} (${inspect(value).slice(0, 28)})`
}
