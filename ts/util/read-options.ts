// Reads option objects. It reads every value of a caller once: a getter can throw, or return
// another value the next time.

import { codedError, shown } from './errors.js'
import { type KnownKeys, SPAWN_NODE, SPAWN_OWNED } from './option-keys.js'
import { isOneSlipAway, nearest } from './spelling.js'
import { checkObject, reading } from './validation.js'

interface Place {
  /** The function that takes the options, for messages. */
  of: string
  /** The name of the object, for messages. */
  name?: string
  /**
   * Refuses an unknown key even if its value is undefined: a filter without the key matches more.
   */
  strict?: boolean
}

/**
 * Returns a frozen copy of the options, without a prototype and without keys whose value is
 * undefined.
 *
 * Throws if a key is unknown, because a misspelled `dryRun` must not kill. Only own enumerable
 * properties are options. An inherited known key, for example of a class, is an error for the same
 * reason. Properties of `Object.prototype` are ignored.
 */
export function readOptions<Options extends object>(
  given: unknown,
  keys: KnownKeys<Options>,
  place: Place,
): Readonly<Partial<Options>> {
  const { name = 'options' } = place
  const plain: Record<string, unknown> = { __proto__: null }
  if (given !== undefined) {
    reading(name, () => checkObject(given, name))
    const own = reading(name, () => Object.keys(given as object))
    for (const key of own) copyOne(given as Record<string, unknown>, key, plain, keys, place)
    refuseInherited(given as object, own, keys, name)
  }
  return Object.freeze(plain) as Partial<Options>
}

function copyOne(
  given: Record<string, unknown>,
  key: string,
  plain: Record<string, unknown>,
  keys: ReadonlySet<string>,
  { of, name = 'options', strict = false }: Place,
): void {
  const value = reading(`${name}.${key}`, () => given[key])
  if (!keys.has(key) && (strict || value !== undefined)) throw unknownKey(name, key, value, of, keys)
  if (value !== undefined) plain[key] = value
}

function refuseInherited(
  given: object,
  own: readonly string[],
  keys: ReadonlySet<string>,
  name: string,
): void {
  const isInherited = (key: string) => key in given && !own.includes(key) && !(key in Object.prototype)
  const inherited = reading(name, () => [...keys].find(isInherited))
  if (inherited === undefined) return
  throw codedError(
    TypeError,
    'ERR_INVALID_ARG_VALUE',
    `The property '${name}.${inherited}' is inherited or not enumerable, and would be ignored. ` +
      'Pass it as a property of the object itself.',
  )
}

/**
 * Throws if a key differs from a known option of a run by case only, or by one letter.
 *
 * Other unknown keys are allowed: callers pass objects that they share with other packages.
 */
export function refuseMisspelled(
  options: object,
  of: string,
  extra?: ReadonlySet<string>,
  name = 'options',
): void {
  for (const key of Object.keys(options)) {
    if (SPAWN_OWNED.has(key) || SPAWN_NODE.has(key) || extra?.has(key) || FOREIGN.has(key)) continue
    const value = (options as Record<string, unknown>)[key]
    if (value === undefined) continue
    const meant = [...SPAWN_OWNED, ...SPAWN_NODE, ...(extra ?? [])].find((known) => isMisspelled(key, known))
    if (meant !== undefined) throw unknownKey(name, key, value, of, new Set([meant]))
  }
}

/** Keys of other packages that differ from a key of Node by one letter: execa has `stdin`. */
const FOREIGN: ReadonlySet<string> = new Set(['stdin'])

/**
 * Whether a key is a misspelling of a known key.
 *
 * Known keys of three letters resemble too many words (`pid`, `id`, `tty`). For them, only a
 * difference in case counts.
 */
function isMisspelled(key: string, known: string): boolean {
  return known.length < 4 ? key.toLowerCase() === known : isOneSlipAway(key, known)
}

function unknownKey(
  name: string,
  key: string,
  value: unknown,
  of: string,
  keys: ReadonlySet<string>,
): NodeJS.ErrnoException {
  const meant = nearest(key, keys)
  const hint =
    meant === undefined ? `; its options are ${[...keys].join(', ')}` : `; did you mean '${meant}'?`
  const end = meant === undefined ? '.' : ''
  return codedError(
    TypeError,
    'ERR_INVALID_ARG_VALUE',
    `The property '${name}.${key}' is not an option of ${of}${hint}${end} Received ${shown(value)}. Nothing was done.`,
  )
}
