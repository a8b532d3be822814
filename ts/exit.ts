// From what the keeper reported to one truthful RunExit. Pure.

import type { ProcessInfo, RunExit, TerminationReason } from '../index.js'
import { invalidValue } from './errors.js'

/** Why the tree was ended, in the native side's words. */
export type Ending = 'root-exit' | 'cancel' | 'overall-timeout' | 'owner-exit' | 'shutdown' | 'lost'

export interface Facts {
  runId: string
  ending: Ending
  /** What the first cancel asked the reason to be. */
  cancelReason: TerminationReason
  exitCode: number | null
  signal: NodeJS.Signals | null
  durationMs: number
  timeoutMs: number
  escaped: ProcessInfo[]
  survivors: ProcessInfo[]
}

const reasons: readonly TerminationReason[] = [
  'exit',
  'signal',
  'manual-cancel',
  'overall-timeout',
  'no-output-timeout',
  'spawn-error',
  'ownership-escape',
  'owner-exit',
  'shutdown',
  'lost',
]

/** What a cancel asks the reason to be. */
export function terminationReason(given: unknown): TerminationReason {
  if (given === undefined) return 'manual-cancel'
  const known = reasons.find((reason) => reason === given)
  if (!known) throw invalidValue('options.reason', given, `must be one of: ${reasons.join(', ')}`)
  return known
}

export function describeExit(facts: Facts): RunExit {
  const { runId, exitCode, signal, durationMs, escaped, survivors } = facts
  const reason = reasonFor(facts)
  const left = survivors.length > 0 ? `; ${count(survivors, 'process')} could not be ended` : ''
  return {
    runId,
    reason,
    exitCode,
    signal,
    durationMs,
    timedOut: reason === 'overall-timeout' || reason === 'no-output-timeout',
    noOutputTimedOut: reason === 'no-output-timeout',
    message: sentence(reason, facts) + left,
    escaped,
    survivors,
  }
}

/** A command that could not be started: nothing of it ever existed. */
export function describeFailedStart(runId: string, message: string): RunExit {
  return {
    runId,
    reason: 'spawn-error',
    exitCode: null,
    signal: null,
    durationMs: 0,
    timedOut: false,
    noOutputTimedOut: false,
    message,
    escaped: [],
    survivors: [],
  }
}

function reasonFor({ ending, cancelReason, signal, escaped }: Facts): TerminationReason {
  switch (ending) {
    case 'cancel':
      return cancelReason
    case 'root-exit':
      if (escaped.length > 0) return 'ownership-escape'
      return signal === null ? 'exit' : 'signal'
    default:
      return ending
  }
}

function sentence(reason: TerminationReason, { exitCode, signal, escaped, timeoutMs }: Facts): string {
  const end = signal === null ? `exited with code ${exitCode}` : `ended by ${signal}`
  switch (reason) {
    case 'exit':
    case 'signal':
      return end
    case 'ownership-escape':
      return `${end}; ${count(escaped, 'process')} that had left its session outlived it`
    case 'overall-timeout':
      return `turn timed out after ${timeoutMs / 1000}s`
    case 'manual-cancel':
      return 'cancelled'
    case 'owner-exit':
      return 'ended because its owner is gone'
    case 'shutdown':
      return 'ended because its keeper was asked to shut down'
    case 'lost':
      return 'its keeper was killed; the tree was ended from outside'
    default:
      return `ended: ${reason}`
  }
}

function count(list: readonly unknown[], noun: string): string {
  return list.length === 1 ? `1 ${noun}` : `${list.length} ${noun}es`
}
