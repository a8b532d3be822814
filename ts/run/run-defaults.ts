// The defaults of a supervisor for the options of its runs.

import type { RunDefaults } from '../../index.js'
import { RUN_DEFAULTS } from '../util/option-keys.js'
import { readLabels } from '../util/validation.js'
import { readArguments } from './spawn-options.js'

/**
 * Returns the run options among the options of a supervisor, or undefined if there are none.
 *
 * Throws if a value is invalid: otherwise every run would throw.
 */
export function readDefaults(given: RunDefaults, graceMs: number): RunDefaults | undefined {
  const known = Object.entries(given).filter(([key]) => key !== 'graceMs' && RUN_DEFAULTS.has(key))
  if (known.length === 0) return undefined
  const defaults: RunDefaults = Object.fromEntries(known)
  readArguments('command', [], defaults, graceMs)
  // A copy, because the caller can change its object later.
  return defaults.labels === undefined
    ? defaults
    : { ...defaults, labels: readLabels(defaults.labels, 'options.labels') }
}

interface Merged {
  readonly args: unknown
  readonly options: unknown
  /** The idle timeout is a default, so a run without a pipe ignores it. */
  readonly hasDefaultIdleTimeout: boolean
}

/** Adds the defaults to the arguments of spawnOwned. `args` is optional there. */
export function withDefaults(defaults: RunDefaults | undefined, args: unknown, options: unknown): Merged {
  if (defaults === undefined) return { args, options, hasDefaultIdleTimeout: false }
  const isArgs = args == null || Array.isArray(args)
  const given = isArgs ? options : args
  const isObject = typeof given === 'object' && given !== null && !Array.isArray(given)
  // Another value is an error, which spawnOwned reports.
  if (given !== undefined && !isObject) return { args, options, hasDefaultIdleTimeout: false }
  const merged = mergedOptions(defaults, (given ?? {}) as Record<string | symbol, unknown>)
  const { noOutputTimeoutMs } = (given ?? {}) as RunDefaults
  return { args: isArgs ? args : [], options: merged, hasDefaultIdleTimeout: noOutputTimeoutMs === undefined }
}

function mergedOptions(defaults: RunDefaults, given: Record<string | symbol, unknown>): object {
  const merged: Record<string | symbol, unknown> = { ...defaults }
  for (const [key, value] of Object.entries({ ...given })) if (value !== undefined) merged[key] = value
  for (const key of Object.getOwnPropertySymbols(given)) merged[key] = given[key]
  // Invalid labels are an error of the run.
  if (defaults.labels && isPlain(given.labels)) merged.labels = { ...defaults.labels, ...given.labels }
  return merged
}

const isPlain = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
