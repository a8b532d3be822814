// The options of cancel.

import type { CancelOptions, TerminationReason } from '../../index.js'
import { CANCEL } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { killSignalNumber } from '../util/signals.js'
import { duration } from '../util/validation.js'
import { terminationReason } from './run-exit.js'

/** The options of a cancel, complete. */
export interface CancelSettings {
  signal: number
  /** Whole milliseconds. Undefined: the grace of the run. */
  graceMs: number | undefined
  reason: TerminationReason
}

/** Reads the options of a cancel. Throws before any process is signalled. */
export function readCancelOptions(options: CancelOptions | undefined, of = 'cancel'): CancelSettings {
  return settingsOf(copyCancelOptions(options, of))
}

/** Returns a checked copy of the options, without getters. */
export function copyCancelOptions(options: CancelOptions | undefined, of = 'cancel'): CancelOptions {
  const given = readOptions(options, CANCEL, { of })
  settingsOf(given)
  return given
}

function settingsOf(given: CancelOptions): CancelSettings {
  const graceMs = duration(given.graceMs, 'options.graceMs')
  return {
    signal: killSignalNumber(given.signal, 'options.signal'),
    graceMs: graceMs === undefined ? undefined : Math.trunc(graceMs),
    reason: terminationReason(given.reason),
  }
}
