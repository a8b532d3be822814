// How a run is to be ended.

import type { CancelOptions, TerminationReason } from '../index.js'
import { checkOptions, duration } from './checks.js'
import { terminationReason } from './exit.js'
import { killSignalNumber } from './signals.js'

export interface How {
  signal: number
  /** Undefined: as the run itself has it. Whole milliseconds. */
  graceMs: number | undefined
  reason: TerminationReason
}

/** Throws before anybody is touched. */
export function readCancelOptions(options: CancelOptions | undefined): How {
  checkOptions(options)
  const graceMs = duration(options?.graceMs, 'options.graceMs')
  return {
    signal: killSignalNumber(options?.signal, 'options.signal'),
    graceMs: graceMs === undefined ? undefined : Math.trunc(graceMs),
    reason: terminationReason(options?.reason),
  }
}
