// What is different on Windows: pure, and the same for every caller, so that it can be tested anywhere.

export const isWindows = process.platform === 'win32'

/** How the shell is told a command. `verbatim`: in a command line that must not be quoted again. */
export interface ShellCommand {
  file: string
  args: string[]
  verbatim: boolean
}

/** `cmd.exe` has switches and quotes of its own; every other shell is told as it is elsewhere. */
export function shellOnWindows(file: string, command: string): ShellCommand {
  return /^(?:.*\\)?cmd(?:\.exe)?$/i.test(file)
    ? { file, args: ['/d', '/s', '/c', `"${command}"`], verbatim: true }
    : { file, args: ['-c', command], verbatim: false }
}

/** Of names that differ in case only, which are one name there, the first in the order of their letters: `PATH` before `Path`. */
export function namesOnWindows(names: readonly string[]): string[] {
  const seen = new Set<string>()
  return [...names].sort().filter((name) => {
    const capitals = name.toUpperCase()
    return !seen.has(capitals) && seen.add(capitals)
  })
}

/**
 * There are no signals there, and Node imitates four. The others that have a name there end a process too, as SIGKILL does; but
 * SIGWINCH never means an end, and is refused.
 */
export function signalOnWindows(number: number, signals: Readonly<Record<string, number>>): number {
  if (number === 0) return number
  const imitated = ['SIGINT', 'SIGQUIT', 'SIGKILL', 'SIGTERM', 'SIGWINCH']
  return imitated.some((name) => signals[name] === number) ? number : (signals.SIGKILL ?? number)
}
