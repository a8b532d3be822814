// Signal names and numbers. Node's rules decide what a signal is.

import { constants } from 'node:os'
import { invalidType, unknownSignal } from './errors.js'
import { isWindows, signalOnWindows } from './windows.js'

const numbers = constants.signals as Record<string, number>
const names = new Map<number, NodeJS.Signals>()
for (const [name, number] of Object.entries(numbers)) {
  // Some numbers have two names (SIGABRT, SIGIOT); Node reports the first.
  if (!names.has(number)) names.set(number, name as NodeJS.Signals)
}

/** Returns the number of a signal. Throws ERR_UNKNOWN_SIGNAL if it is no name or number of one. */
export function signalNumber(signal: unknown): number {
  if (typeof signal === 'number' && names.has(signal)) return signal
  if (typeof signal === 'string') {
    const number = numbers[signal] ?? numbers[signal.toUpperCase()]
    if (number !== undefined) return number
  }
  throw unknownSignal(signal)
}

/** Returns the signal that a process gets when the caller sends `number` to it. */
export function delivered(number: number): number {
  return isWindows ? signalOnWindows(number, numbers) : number
}

/**
 * Returns the signal number of an option.
 *
 * undefined and null mean SIGTERM. Types other than string and number are ERR_INVALID_ARG_TYPE.
 */
export function killSignalNumber(signal: unknown, name = 'options.killSignal'): number {
  if (signal == null) return signalNumber('SIGTERM')
  if (typeof signal === 'string' || typeof signal === 'number') return signalNumber(signal)
  throw invalidType(name, 'one of type string or number', signal)
}

/**
 * Returns the name of a signal. A real-time signal has none: its number is its name, as in Node.
 */
export function signalName(number: number): NodeJS.Signals {
  return names.get(number) ?? (String(number) as NodeJS.Signals)
}

/** The signals whose default action ends a process. */
const ENDING = new Set(
  Object.entries(constants.signals)
    .filter(([name]) => !/^SIG(CONT|STOP|TSTP|TTIN|TTOU|CHLD|CLD|URG|WINCH)$/.test(name))
    .map(([, number]) => number),
)

/**
 * Whether the default action of a signal ends a process.
 *
 * A run that is not started yet ignores the other signals.
 */
export const endsByDefault = (signal: number): boolean => ENDING.has(signal)
