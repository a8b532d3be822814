// The rules of Node that differ on Windows. Pure, so that tests can check them on every system.

export const isWindows = process.platform === 'win32'

/** How to start a shell that runs a command. */
export interface ShellCommand {
  file: string
  args: string[]
  /** The arguments must not be quoted again. */
  verbatim: boolean
}

/** Returns how a shell runs `command`. `cmd.exe` has its own switches and quotes. */
export function shellOnWindows(file: string, command: string): ShellCommand {
  return /^(?:.*\\)?cmd(?:\.exe)?$/i.test(file)
    ? { file, args: ['/d', '/s', '/c', `"${command}"`], verbatim: true }
    : { file, args: ['-c', command], verbatim: false }
}

/**
 * Returns the names of environment variables without duplicates.
 *
 * Names that differ by case only are one variable on Windows. The first in sort order remains:
 * `PATH` before `Path`.
 */
export function namesOnWindows(names: readonly string[]): string[] {
  const seen = new Set<string>()
  return [...names].sort().filter((name) => {
    const capitals = name.toUpperCase()
    return !seen.has(capitals) && seen.add(capitals)
  })
}

/**
 * Returns the signal that Windows uses instead of `number`.
 *
 * Windows has no signals; Node imitates four of them. Every other named signal kills the process,
 * as SIGKILL does. SIGWINCH must never kill, so it stays, and is refused later.
 */
export function signalOnWindows(number: number, signals: Readonly<Record<string, number>>): number {
  if (number === 0) return number
  const imitated = ['SIGINT', 'SIGQUIT', 'SIGKILL', 'SIGTERM', 'SIGWINCH']
  return imitated.some((name) => signals[name] === number) ? number : (signals.SIGKILL ?? number)
}
