// What goes wrong with a registry while nobody has asked it anything.

import type { LeaseEvent, RegistryEvent } from '../index.js'

/** In the native side's words. */
export interface Trouble {
  kind: string
  message: string
  path?: string | undefined
  runIds?: string[] | undefined
}

const warned = new Set<string>()

/** Once for each kind of trouble with a registry: it may happen with every checkpoint. */
export function warnOf(event: RegistryEvent | LeaseEvent, registryPath: string): void {
  const code = `OWNED_${event.type}_${event.kind}`.toUpperCase().replaceAll('-', '_')
  const once = `${code} ${registryPath}`
  if (warned.has(once)) return
  warned.add(once)
  process.emitWarning(event.message, { code })
}
