// What a caller can change about a run after its start: timeouts, labels and metadata.

import type { DeadlineChange, RunChanges } from '../../index.js'
import { invalidValue } from '../util/errors.js'
import { SET_DEADLINE, UPDATE } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { duration, readLabels } from '../util/validation.js'
import { readMetadata } from './metadata.js'

interface Outputs {
  readonly stdout: unknown
  readonly stderr: unknown
}

/** Reads the change of the timeouts. Undefined: no change. Whole milliseconds, as 0 means none. */
export function readDeadlineChange(change: DeadlineChange, { stdout, stderr }: Outputs): DeadlineChange {
  const given = readOptions(change ?? null, SET_DEADLINE, { of: 'setDeadline', name: 'deadline' })
  const whole = (name: keyof DeadlineChange) => {
    const ms = duration(given[name], `deadline.${name}`)
    return ms === undefined ? undefined : Math.ceil(ms)
  }
  const noOutputTimeoutMs = whole('noOutputTimeoutMs')
  if (noOutputTimeoutMs && !stdout && !stderr) {
    throw invalidValue(
      'deadline.noOutputTimeoutMs',
      noOutputTimeoutMs,
      "needs an output that the bot reads. Start the run with 'pipe' in options.stdio",
    )
  }
  return { timeoutMs: whole('timeoutMs'), noOutputTimeoutMs }
}

/** Returns the labels and the metadata after a change. */
export function readChanges(
  changes: RunChanges,
  before: Readonly<Record<string, string>>,
  metadataBefore: string | undefined,
): { labels: Readonly<Record<string, string>>; metadata: string | undefined } {
  const given = readOptions(changes ?? null, UPDATE, { of: 'update', name: 'changes' })
  const labels = { ...before, ...readLabels(given.labels, 'changes.labels') }
  const metadata =
    given.metadata === undefined ? metadataBefore : readMetadata(given.metadata, 'changes.metadata')
  return { labels, metadata }
}
