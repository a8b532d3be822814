// Signal names and numbers, with Node's rules for what is a signal.

import { constants } from 'node:os'
import { invalidType, unknownSignal } from './errors.js'
import { isWindows, signalOnWindows } from './windows.js'

const numbers = constants.signals as Record<string, number>
const names = new Map<number, NodeJS.Signals>()
for (const [name, number] of Object.entries(numbers)) {
  // Some numbers have two names (SIGABRT, SIGIOT); Node reports the first.
  if (!names.has(number)) names.set(number, name as NodeJS.Signals)
}

/** The number of a signal given by name or number; throws ERR_UNKNOWN_SIGNAL for anything else. */
export function signalNumber(signal: unknown): number {
  if (typeof signal === 'number' && names.has(signal)) return signal
  if (typeof signal === 'string') {
    const number = numbers[signal] ?? numbers[signal.toUpperCase()]
    if (number !== undefined) return number
  }
  throw unknownSignal(signal)
}

/** What becomes of a signal that is sent to one process. */
export function delivered(number: number): number {
  return isWindows ? signalOnWindows(number, numbers) : number
}

/** Like {@link signalNumber}, for options: undefined and null mean SIGTERM, and other types are ERR_INVALID_ARG_TYPE. */
export function killSignalNumber(signal: unknown, name = 'options.killSignal'): number {
  if (signal == null) return signalNumber('SIGTERM')
  if (typeof signal === 'string' || typeof signal === 'number') return signalNumber(signal)
  throw invalidType(name, 'one of type string or number', signal)
}

/** Node reports a signal it has no name for (real-time signals) as its number's text; there is none, so do we. */
export function signalName(number: number): NodeJS.Signals {
  return names.get(number) ?? (String(number) as NodeJS.Signals)
}

const ENDING = new Set(
  Object.entries(constants.signals)
    .filter(([name]) => !/^SIG(CONT|STOP|TSTP|TTIN|TTOU|CHLD|CLD|URG|WINCH)$/.test(name))
    .map(([, number]) => number),
)

/** Whether a signal ends who does nothing about it. The others mean nothing to what does not exist yet. */
export const endsByDefault = (signal: number): boolean => ENDING.has(signal)
