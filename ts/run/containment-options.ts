// The options `containment` and `limits`.

import type { LaunchOptions } from '../native/addon.js'
import { invalidType, invalidValue, outOfRange } from '../util/errors.js'
import { LIMITS } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'

type Containment = Pick<LaunchOptions, 'containment' | 'memoryBytes' | 'processes'>

/**
 * Reads both options. Throws for limits together with `containment: 'keeper'`: they need a cgroup.
 */
export function readContainment(options: { containment?: unknown; limits?: unknown }): Containment {
  const containment = options.containment ?? 'auto'
  if (containment !== 'auto' && containment !== 'keeper' && containment !== 'cgroup')
    throw invalidValue('options.containment', containment, "must be 'auto', 'keeper' or 'cgroup'")
  const { limits } = options
  if (limits === undefined) return { containment, memoryBytes: undefined, processes: undefined }
  const given = readOptions(limits, LIMITS, { of: 'spawnOwned', name: 'options.limits' })
  const { memoryBytes, processes } = given
  const read = { memoryBytes: limit(memoryBytes, 'memoryBytes'), processes: limit(processes, 'processes') }
  if (containment === 'keeper' && (read.memoryBytes ?? read.processes) !== undefined)
    throw invalidValue(
      'options.containment',
      containment,
      "cannot be 'keeper' with options.limits, which need a cgroup",
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
