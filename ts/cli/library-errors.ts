// Errors of the library name its options. The command line has flags instead. Pure.

const FLAGS: readonly (readonly [option: RegExp, flag: string])[] = [
  [/(?:options\.)?registryPath/g, '--registry'],
  [/options\.cwd/g, '--cwd'],
  [/options\.runId/g, '--run-id'],
  [/options\.pty/g, '--pty'],
  [/options\.onOwnerExit is 'keep'/g, '--keep is given'],
  [/use 'kill'/gi, 'omit --keep'],
  [/options\.limits and containment:? 'cgroup'/g, '--memory and --processes'],
  // The log lies beside the registry.
  [/set options\.eventLogPath \(null: no log\)/g, 'choose another --registry'],
]

/** Returns a message of the library with the flags of the command line. */
export function withFlags(message: string): string {
  return FLAGS.reduce((text, [option, flag]) => text.replace(option, flag), message)
}

/** Whether the working directory is the reason of a failed start. */
export const isDirectoryProblem = (message: string) => message.includes('options.cwd')
