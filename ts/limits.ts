// What a run may use, and what holds it together.

import { checkObject } from './checks.js'
import { invalidType, invalidValue, outOfRange } from './errors.js'

export interface Containment {
  containment: 'auto' | 'keeper' | 'cgroup'
  memoryBytes: number | undefined
  processes: number | undefined
}

/** Limits need a cgroup: whoever sets some and rules that out is told so. */
export function readContainment(options: { containment?: unknown; limits?: unknown }): Containment {
  const containment = options.containment ?? 'auto'
  if (containment !== 'auto' && containment !== 'keeper' && containment !== 'cgroup')
    throw invalidValue('options.containment', containment, "must be 'auto', 'keeper' or 'cgroup'")
  const { limits } = options
  if (limits === undefined) return { containment, memoryBytes: undefined, processes: undefined }
  checkObject(limits, 'options.limits')
  const { memoryBytes, processes, ...others } = limits as Record<string, unknown>
  for (const name in others)
    throw invalidValue(
      `options.limits.${name}`,
      others[name],
      'is no limit; there are memoryBytes and processes',
    )
  const read = { memoryBytes: limit(memoryBytes, 'memoryBytes'), processes: limit(processes, 'processes') }
  if (containment === 'keeper' && (read.memoryBytes ?? read.processes) !== undefined)
    throw invalidValue(
      'options.containment',
      containment,
      "cannot be 'keeper' with limits, which need a cgroup",
    )
  return { containment, ...read }
}

function limit(value: unknown, name: string): number | undefined {
  if (value === undefined) return undefined
  if (typeof value !== 'number') throw invalidType(`options.limits.${name}`, 'of type number', value)
  if (!Number.isSafeInteger(value) || value < 1)
    throw outOfRange(`options.limits.${name}`, 'a safe integer >= 1', value)
  return value
}
