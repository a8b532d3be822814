// Names for runs and supervisors that nobody else has.

let randomUUID: (() => string) | undefined

/** Loaded when it is needed: node:crypto alone takes a third of the time that importing this package takes without it. */
export function freshId(): string {
  randomUUID ??= (require('node:crypto') as typeof import('node:crypto')).randomUUID
  return randomUUID()
}
