// From what was reported of a run's end to one truthful RunExit. Pure.

import type { ProcessInfo, RunExit, TerminationReason } from '../index.js'
import { invalidValue } from './errors.js'

/** Why the tree was ended, in the native side's words. */
export type Ending =
  | 'root-exit'
  | 'cancel'
  | 'overall-timeout'
  | 'owner-exit'
  | 'shutdown'
  | 'lost'
  /** It had ended before anybody could ask, and nobody knows how. */
  | 'gone'

export interface Facts {
  runId: string
  ending: Ending
  /** What the cancel that ended it, here or in another process, asked the reason to be. */
  cancelReason: string | undefined
  exitCode: number | null
  signal: NodeJS.Signals | null
  durationMs: number
  /** 0: not known, or none. */
  timeoutMs: number
  escaped: ProcessInfo[]
  survivors: ProcessInfo[]
  /** If that is more than there are names. */
  survivorCount?: number | undefined
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
  const left = facts.survivorCount ?? survivors.length
  const but = left > 0 ? `; ${count(left, 'process')} could not be ended` : ''
  return {
    runId,
    reason,
    exitCode,
    signal,
    durationMs,
    timedOut: reason === 'overall-timeout' || reason === 'no-output-timeout',
    noOutputTimedOut: reason === 'no-output-timeout',
    message: sentence(reason, facts) + but,
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
      // Another version of us may have words of its own.
      return reasons.find((reason) => reason === cancelReason) ?? 'manual-cancel'
    case 'root-exit':
      if (escaped.length > 0) return 'ownership-escape'
      return signal === null ? 'exit' : 'signal'
    case 'gone':
      return 'exit'
    default:
      return ending
  }
}

function sentence(reason: TerminationReason, facts: Facts): string {
  const { ending, exitCode, signal, escaped, timeoutMs } = facts
  if (ending === 'cancel') return cancelSentence(reason)
  if (ending === 'gone') return 'had ended already; how is not known'
  const end = howItEnded(exitCode, signal)
  switch (reason) {
    case 'exit':
    case 'signal':
      return end
    case 'ownership-escape':
      return `${end}; ${count(escaped.length, 'process')} that had left its session outlived it`
    case 'overall-timeout':
      return timeoutMs > 0 ? `turn timed out after ${timeoutMs / 1000}s` : 'turn timed out'
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

/** What was asked for need not be what has happened. */
function cancelSentence(reason: TerminationReason): string {
  if (reason === 'manual-cancel') return 'cancelled'
  return reason === 'overall-timeout' ? 'turn timed out' : `cancelled: ${reason}`
}

function howItEnded(exitCode: number | null, signal: NodeJS.Signals | null): string {
  if (signal !== null) return `ended by ${signal}`
  // Nobody's parent learns no code.
  return exitCode === null ? 'exited' : `exited with code ${exitCode}`
}

function count(number: number, noun: string): string {
  return number === 1 ? `1 ${noun}` : `${number} ${noun}es`
}
