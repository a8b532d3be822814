// Unique ids for runs and supervisors.

let randomUUID: (() => string) | undefined

/**
 * Returns a random UUID.
 *
 * Loads node:crypto at the first call: it would make the import of this package a third slower.
 */
export function freshId(): string {
  randomUUID ??= (require('node:crypto') as typeof import('node:crypto')).randomUUID
  return randomUUID()
}
