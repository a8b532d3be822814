// Problems of the registry that do not belong to a call of the bot, as process warnings.

import type { LeaseEvent, RegistryEvent } from '../../index.js'

/** A problem that the native side reports. */
export interface RegistryWarning {
  kind: string
  message: string
  path?: string | undefined
  runIds?: string[] | undefined
}

const warned = new Set<string>()

/**
 * Emits a process warning, once per kind of problem and registry.
 *
 * A problem can occur again at every checkpoint.
 */
export function warnOnce(event: RegistryEvent | LeaseEvent, registryPath: string): void {
  const code = `OWNED_${event.type}_${event.kind}`.toUpperCase().replaceAll('-', '_')
  const key = `${code} ${registryPath}`
  if (warned.has(key)) return
  warned.add(key)
  process.emitWarning(event.message, { code })
}
