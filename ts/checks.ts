// What options of ours may be, whoever takes them.

import { invalidType, invalidValue, outOfRange } from './errors.js'

const PREVIEW_LENGTH = 120
const MAX_PID = 2 ** 31 - 1

/** The options of a call, which may be left out. */
export function checkOptions(options: unknown, name = 'options'): asserts options is object | undefined {
  if (options !== undefined) checkObject(options, name)
}

export function checkObject(value: unknown, name: string): asserts value is object {
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw invalidType(name, 'of type object', value)
}

/** A copy without a prototype: what somebody has put on Object.prototype is not an option. */
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
  if (!Number.isInteger(value) || value < 1 || value > MAX_PID)
    throw outOfRange(name, `an integer >= 1 && <= ${MAX_PID}`, value)
}

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

/** Milliseconds, or undefined if not given. */
export function duration(value: unknown, name: string): number | undefined {
  if (value === undefined) return undefined
  if (typeof value !== 'number') throw invalidType(name, 'of type number', value)
  if (!(value >= 0 && value <= Number.MAX_SAFE_INTEGER))
    throw outOfRange(name, '>= 0 and a safe integer', value)
  return value
}

export function checkRunId(runId: string, name: string): string {
  if (!/^[\w.-]{1,128}$/.test(runId))
    throw invalidValue(name, runId, 'must be 1 to 128 letters, digits, ".", "_" or "-"')
  return runId
}

export function readLabels(labels: unknown, name: string): Readonly<Record<string, string>> {
  if (labels === undefined) return {}
  checkObject(labels, name)
  for (const [key, value] of Object.entries(labels)) checkString(value, `${name}['${key}']`)
  return { ...labels } as Record<string, string>
}

/** One line without control characters, short enough for a table. */
export function preview(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is to be removed
  const line = text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ').trim()
  return line.length <= PREVIEW_LENGTH ? line : `${line.slice(0, PREVIEW_LENGTH - 1)}…`
}
