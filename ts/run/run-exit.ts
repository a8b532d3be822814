// Builds the RunExit of a run from the facts about its end. Pure.

import type { RunExit, StartError, TerminationReason } from '../../index.js'
import type { NativeEnd } from '../native/addon.js'
import { invalidValue } from '../util/errors.js'
import { signalName } from '../util/signals.js'

/** What ended the tree. `gone`: it ended before the call, and its exit status is unknown. */
export type Ending = NativeEnd['ending']

/** What the native side reports about an end, and what only the JavaScript side knows. */
export interface EndFacts extends NativeEnd {
  runId: string
  /** The root process exited before the run was ended. Default: what `reason` says. */
  exitedByItself?: boolean | undefined
  durationMs: number
  /** The number of survivors, if it is larger than the list. */
  survivorCount?: number | undefined
}

/** The facts about an end that has no exit status, no deadline and no processes to list. */
export const nothingElse = { limitMs: 0, leftovers: [], escaped: [], forced: [], survivors: [] }

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

/** Reads the `reason` option of a cancel. */
export function terminationReason(given: unknown): TerminationReason {
  if (given === undefined) return 'manual-cancel'
  const known = reasons.find((reason) => reason === given)
  if (!known) throw invalidValue('options.reason', given, `must be one of: ${reasons.join(', ')}`)
  return known
}

export function describeExit(facts: EndFacts): RunExit {
  const { runId, reason, durationMs, leftovers, escaped, forced, survivors, unlisted } = facts
  const left = facts.survivorCount ?? survivors.length + (unlisted?.survivors ?? 0)
  const but = left > 0 ? `; ${count(left, 'process')} could not be terminated` : ''
  const byItself = facts.exitedByItself || reason === 'exit' || reason === 'ownership-escape'
  return {
    runId,
    reason,
    ok: byItself && facts.exitCode === 0,
    exitCode: facts.exitCode ?? null,
    signal: signalOf(facts),
    durationMs,
    timedOut: reason === 'overall-timeout' || reason === 'no-output-timeout',
    noOutputTimedOut: reason === 'no-output-timeout',
    message: sentence(facts) + but,
    leftovers,
    escaped,
    forced,
    survivors,
    ...(unlisted ? { unlisted } : {}),
  }
}

/** Returns the exit of a run that was cancelled before its start. */
export function describeCancelledBeforeStart(runId: string, reason: TerminationReason): RunExit {
  const exit = describeExit({ runId, ending: 'cancel', reason, durationMs: 0, ...nothingElse })
  return { ...exit, message: `${exit.message} before it was started` }
}

/** Returns the exit of a command that could not be started. */
export function describeFailedStart(runId: string, error: NodeJS.ErrnoException): RunExit {
  const { message } = error
  return {
    runId,
    reason: 'spawn-error',
    ok: false,
    exitCode: null,
    signal: null,
    durationMs: 0,
    timedOut: false,
    noOutputTimedOut: false,
    message,
    error: startErrorOf(error),
    leftovers: [],
    escaped: [],
    forced: [],
    survivors: [],
  }
}

/** Returns the properties of the emitted error as a plain object: a RunExit can be sent as JSON. */
function startErrorOf(error: NodeJS.ErrnoException): StartError {
  const { code = 'ERR_OWNED_SPAWN', message, errno, syscall, path } = error
  const { spawnargs } = error as { spawnargs?: readonly string[] }
  return {
    code,
    message,
    ...(errno !== undefined && { errno }),
    ...(syscall !== undefined && { syscall }),
    ...(path !== undefined && { path }),
    ...(spawnargs !== undefined && { spawnargs }),
  }
}

function signalOf({ signal }: NativeEnd): NodeJS.Signals | null {
  return signal == null ? null : signalName(signal)
}

function sentence(facts: EndFacts): string {
  const { ending, reason, limitMs, exitCode = null } = facts
  const signal = signalOf(facts)
  const escaped = facts.escaped.length + (facts.unlisted?.escaped ?? 0)
  // A kill of the root process ended its descendants too.
  const wasKilled = (reason === 'exit' || reason === 'signal') && (exitCode !== null || signal !== null)
  if (ending === 'cancel' && !wasKilled) return cancelSentence(reason)
  if (ending === 'gone') return 'had already ended; its exit status is unknown'
  const end = howItEnded(exitCode, signal)
  switch (reason) {
    case 'exit':
    case 'signal':
      return end
    case 'ownership-escape':
      return `${end}; ${count(escaped, 'process')} that had left its session outlived it`
    case 'overall-timeout':
      return limitMs > 0 ? `turn timed out after ${limitMs / 1000}s` : 'turn timed out'
    case 'no-output-timeout':
      return limitMs > 0 ? `no output for ${limitMs / 1000}s` : 'no output for too long'
    case 'owner-exit':
      return 'ended because its owner is gone'
    case 'shutdown':
      return 'ended because its keeper was shut down'
    case 'lost':
      return 'its keeper was killed; the tree was terminated from outside'
    default:
      return `ended: ${reason}`
  }
}

/**
 * Returns the message of a cancel. The caller chose the reason, so it need not be what happened.
 */
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
  // The exit status is unknown if the root process was not reaped by its keeper.
  return exitCode === null ? 'exited' : `exited with code ${exitCode}`
}

function count(number: number, noun: string): string {
  return number === 1 ? `1 ${noun}` : `${number} ${noun}es`
}
