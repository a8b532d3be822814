// Checks of option values that several functions share.

import { invalidType, invalidValue, outOfRange, unreadable } from './errors.js'

const PREVIEW_LENGTH = 120
const MAX_PID = 2 ** 31 - 1

export function checkObject(value: unknown, name: string): asserts value is object {
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw invalidType(name, 'of type object', value)
}

/**
 * Returns a copy of the options without a prototype. It reads each value once.
 *
 * Properties of `Object.prototype` are not options.
 */
export function ownOptions<Options extends object>(given: unknown): Options {
  return { __proto__: null, ...(given as Options) }
}

export function checkString(
  value: unknown,
  name: string,
  expected = 'of type string',
): asserts value is string {
  if (typeof value !== 'string') throw invalidType(name, expected, value)
  checkNoNul(value, name)
}

export function checkNoNul(value: string, name: string): void {
  if (value.includes('\0')) throw invalidValue(name, value, 'must be a string without null bytes')
}

export function checkPid(value: unknown, name: string): asserts value is number {
  if (typeof value !== 'number') throw invalidType(name, 'of type number', value)
  if (!isPid(value)) throw outOfRange(name, `an integer >= 1 && <= ${MAX_PID}`, value)
}

/** Whether a number can be the PID of a process. */
export const isPid = (value: number) => Number.isInteger(value) && value >= 1 && value <= MAX_PID

export function optionalText(options: object, name: string, of = 'options'): string | undefined {
  const value: unknown = (options as Record<string, unknown>)[name]
  if (value === undefined) return undefined
  checkString(value, `${of}.${name}`)
  return value
}

export function flag(value: unknown, name: string): boolean {
  if (value === undefined) return false
  if (typeof value !== 'boolean') throw invalidType(name, 'of type boolean', value)
  return value
}

/** Returns a duration in milliseconds, or undefined if none is given. */
export function duration(value: unknown, name: string): number | undefined {
  if (value === undefined) return undefined
  if (typeof value !== 'number') throw invalidType(name, 'of type number', value)
  if (!(value >= 0 && value <= Number.MAX_SAFE_INTEGER))
    throw outOfRange(name, '>= 0 and a safe integer', value)
  return value
}

/** Completes the sentence "A run id must be …". */
export const RUN_ID_RULE = '1 to 128 letters, digits, ".", "_", "-", ":", "@" or "+", and not begin with "."'

export const isRunId = (text: string) => /^[\w:@+-][\w.:@+-]{0,127}$/.test(text)

export function checkRunId(runId: string, name: string): string {
  if (!isRunId(runId)) throw invalidValue(name, runId, `must be ${RUN_ID_RULE}`)
  return runId
}

/** The name of a service is a part of its scope, so it has fewer characters than a run id. */
export function checkServiceName(service: string, name: string): string {
  if (!/^[\w.-]{1,128}$/.test(service))
    throw invalidValue(name, service, 'must be 1 to 128 letters, digits, ".", "_" or "-"')
  return service
}

export function readLabels(labels: unknown, name: string): Readonly<Record<string, string>> {
  if (labels === undefined) return {}
  return reading(name, () => {
    checkObject(labels, name)
    // Read once: a getter can return another value the next time.
    const entries = Object.entries(labels)
    for (const [key, value] of entries) checkString(value, `${name}['${key}']`)
    return Object.fromEntries(entries) as Record<string, string>
  })
}

/**
 * Returns the result of `read`. If a getter or a proxy of the caller throws, the error names the
 * option.
 */
export function reading<T>(name: string, read: () => T): T {
  try {
    return read()
  } catch (error) {
    throw isOurs(error) ? error : unreadable(name, error)
  }
}

const isOurs = (error: unknown) =>
  error instanceof Error && String((error as NodeJS.ErrnoException).code).startsWith('ERR_INVALID_ARG')

/** Returns a text as one line without control characters, short enough for a table. */
export function preview(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the expression removes them
  const line = text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ').trim()
  return line.length <= PREVIEW_LENGTH ? line : `${line.slice(0, PREVIEW_LENGTH - 1)}…`
}
