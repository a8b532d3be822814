// Values that no caller should pass. Those that throw use OwnError, so that their errors differ
// from ours.
import { inspect } from 'node:util'

/**
 * Thrown by a getter or a conversion of such a value. It belongs to the caller and is passed on, as
 * in Node.
 */
export class OwnError extends Error {}

const fails = () => {
  throw new OwnError('thrown by a value that was passed')
}

/** An object whose properties cannot be read. */
const unreadable = () =>
  new Proxy(
    {},
    { get: fails, has: fails, ownKeys: fails, getOwnPropertyDescriptor: fails, getPrototypeOf: fails },
  )

function revoked() {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}

function circular() {
  const it = { list: [] }
  it.list.push(it)
  it.self = it
  return it
}

function rejected() {
  const promise = Promise.reject(new OwnError('rejected'))
  promise.catch(() => {})
  return promise
}

/** Created anew for each use, because a call may change them. */
const values = [
  () => undefined,
  () => null,
  () => true,
  () => false,
  ...[0, -0, 1, -1, 1.5, 7, 65_536, 2 ** 31, -(2 ** 31), 2 ** 32, 2 ** 53, 2 ** 64, 1e308].map(
    (it) => () => it,
  ),
  ...[Number.NaN, Infinity, -Infinity, Number.MIN_VALUE, 10n, 10n ** 40n, -1n].map((it) => () => it),
  ...['', ' ', 'x', '0', '-1', '1e3', 'NaN', 'true', 'null', '__proto__', 'constructor'].map(
    (it) => () => it,
  ),
  ...['\0', 'a\0b', '\ud800', '\udc00x', '\x1b[2J', 'a\nb', '\u202e', '=', 'A=b', '../..', '/'].map(
    (it) => () => it,
  ),
  () => Symbol('s'),
  () => Symbol.iterator,
  () => () => {},
  () => class Anything {},
  () => fails,
  () => [],
  // biome-ignore lint/suspicious/noSparseArray: that is what is to be passed.
  () => [, 'a', , 1],
  () => [null, [undefined, [Symbol('s')]]],
  () => Object.assign([], { length: 3 }),
  () => ({}),
  () => Object.create(null),
  () => Object.freeze({ a: 1 }),
  () => Object.create({ inherited: true }),
  () => ({ __proto__: null, toString: fails }),
  () => ({ toString: fails, valueOf: fails, toJSON: fails, [Symbol.toPrimitive]: fails }),
  () => ({ [inspect.custom]: fails }),
  () => ({ get x() { return fails() }, get length() { return fails() } }), // biome-ignore format: one line each
  () => ({ x: '1', y: 2, z: null }),
  () => ({ aborted: false }),
  () => ({ aborted: true, addEventListener: fails }),
  // biome-ignore lint/suspicious/noThenProperty: that is what is to be passed.
  () => ({ then: fails }),
  () => ({ runId: 7, sessionId: {}, pid: 'x', labels: [] }),
  () => ({ fd: -1 }),
  () => new Proxy({}, {}),
  () => new Proxy(() => {}, { apply: fails, get: fails }),
  unreadable,
  revoked,
  circular,
  rejected,
  () => Promise.resolve(1),
  () => new Date(Number.NaN),
  () => /x/g,
  () => new Map([['a', 1]]),
  () => new Set(['a']),
  () => new WeakRef({}),
  () => Buffer.from([0, 255]),
  () => new Uint8Array(3),
  () => new SharedArrayBuffer(8),
  () => new Error('passed'),
  () => new URL('https://example.org/x'),
  () => new URL('file:///nonexistent'),
  () => new String('boxed'),
  () => new Number(5),
  () => AbortSignal.abort(),
  () => globalThis,
]

/** Rare, because they are slow. */
const huge = [
  () => 'x'.repeat(10_000_000),
  () => '\ud800'.repeat(1_000_000),
  () => Array.from({ length: 200_000 }, (_, index) => `${index}`),
  () => Object.fromEntries(Array.from({ length: 50_000 }, (_, index) => [`k${index}`, `${index}`])),
  () => Array.from({ length: 1000 }).reduce((inner) => [inner], []),
]

/** One of these values. */
export function anything(random) {
  const from = random() < 0.03 ? huge : values
  return from[Math.floor(random() * from.length)]()
}

/** An object with all or some of these properties. Some can be read only once, or not at all. */
export function disturbed(random, base, names) {
  const count = 1 + Math.floor(random() * 3)
  const changed = Array.from({ length: count }, () => names[Math.floor(random() * names.length)])
  const given = { ...base }
  // The prototype comes last: with some prototypes no property can be set any more.
  const isInherited = (name) => name === '__proto__'
  for (const name of changed.filter((name) => !isInherited(name))) given[name] = anything(random)
  for (const name of changed.filter(isInherited)) given[name] = anything(random)
  if (random() < 0.1) Object.defineProperty(given, changed[0], { get: fails, enumerable: true })
  if (random() < 0.1) return Object.freeze(given)
  if (random() < 0.1) return new Proxy(given, {})
  return given
}

/** The passed value as text. */
export function described(value) {
  try {
    return inspect(value, { depth: 3, maxStringLength: 60, maxArrayLength: 5, customInspect: false }).slice(
      0,
      600,
    )
  } catch (error) {
    return `a value that cannot be printed (${error.message})`
  }
}
