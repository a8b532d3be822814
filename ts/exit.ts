// From what was reported of a run's end to one truthful RunExit. Pure.

import type { ProcessInfo, RunExit, TerminationReason } from '../index.js'
import { invalidValue } from './errors.js'

/** Why the tree was ended, in the native side's words. */
export type Ending =
  | 'root-exit'
  | 'cancel'
  | 'overall-timeout'
  | 'no-output-timeout'
  | 'owner-exit'
  | 'shutdown'
  | 'lost'
  /** It had ended before anybody could ask, and nobody knows how. */
  | 'gone'

export interface Facts {
  runId: string
  ending: Ending
  /** One word, as the native side has found it. */
  reason: TerminationReason
  exitCode: number | null
  signal: NodeJS.Signals | null
  durationMs: number
  /** The limit of the deadline that has ended it; 0: not known, or none. */
  limitMs: number
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
  const { runId, reason, exitCode, signal, durationMs, escaped, survivors } = facts
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
    message: sentence(facts) + but,
    escaped,
    survivors,
  }
}

/** A run that was called off before there was anything to be ended. */
export function describeCalledOff(runId: string, reason: TerminationReason): RunExit {
  const facts = { runId, ending: 'cancel', reason, exitCode: null, signal: null, durationMs: 0 } as const
  const exit = describeExit({ ...facts, limitMs: 0, escaped: [], survivors: [] })
  return { ...exit, message: `${exit.message} before it was started` }
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

function sentence(facts: Facts): string {
  const { ending, reason, exitCode, signal, escaped, limitMs } = facts
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
      return limitMs > 0 ? `turn timed out after ${limitMs / 1000}s` : 'turn timed out'
    case 'no-output-timeout':
      return limitMs > 0 ? `no output for ${limitMs / 1000}s` : 'no output for too long'
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
  switch (reason) {
    case 'manual-cancel':
      return 'cancelled'
    case 'overall-timeout':
      return 'turn timed out'
    case 'shutdown':
      return 'ended by a shutdown of its bot'
    default:
      return `cancelled: ${reason}`
  }
}

function howItEnded(exitCode: number | null, signal: NodeJS.Signals | null): string {
  if (signal !== null) return `ended by ${signal}`
  // Nobody's parent learns no code.
  return exitCode === null ? 'exited' : `exited with code ${exitCode}`
}

function count(number: number, noun: string): string {
  return number === 1 ? `1 ${noun}` : `${number} ${noun}es`
}
