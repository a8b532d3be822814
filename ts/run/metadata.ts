// The metadata of a run: a JSON value that the bot stores in the registry entry.

import { codedError, invalidType, shown } from '../util/errors.js'
import { reading } from '../util/validation.js'

/** The longest metadata, as JSON in UTF-8. */
const MAX_BYTES = 4096
/**
 * The deepest metadata. Parsers of the registry refuse more than 128 levels, and would refuse the
 * whole file.
 */
const MAX_DEPTH = 32

/** Returns the metadata as JSON, or undefined if there is none. */
export function readMetadata(value: unknown, name: string): string | undefined {
  if (value === undefined || value === null) return undefined
  // A getter, a proxy or a cycle can throw.
  const json: string | undefined = reading(name, () => JSON.stringify(value))
  if (json === undefined) throw invalidType(name, 'a JSON value', value)
  const bytes = Buffer.byteLength(json)
  if (bytes <= MAX_BYTES) return checkDepth(json, name)
  throw codedError(
    RangeError,
    'ERR_OUT_OF_RANGE',
    `The value of "${name}" is out of range. It must be at most ${MAX_BYTES} bytes of JSON. ` +
      `Received ${bytes} bytes: ${shown(value)}`,
  )
}

function checkDepth(json: string, name: string): string {
  // Strings may contain brackets.
  const brackets = json.replace(/"(?:[^"\\]|\\.)*"/g, '')
  let [depth, deepest] = [0, 0]
  for (const char of brackets) {
    if (char === '[' || char === '{') deepest = Math.max(deepest, ++depth)
    else if (char === ']' || char === '}') depth--
  }
  if (deepest <= MAX_DEPTH) return json
  throw codedError(
    RangeError,
    'ERR_OUT_OF_RANGE',
    `The value of "${name}" is out of range. It must have at most ${MAX_DEPTH} levels of arrays and objects. ` +
      `Received ${deepest} levels.`,
  )
}
