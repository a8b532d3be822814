// The default of the drop-ins for child_process: descendants may outlive the root process.

import { DROP_IN } from '../util/drop-in.js'
import { invalidValue } from '../util/errors.js'

const VARIABLE = 'SPAWN_OWNED_ON_LEADER_EXIT'

/**
 * Returns the options with the default `onLeaderExit: 'keep'`, or that of the environment.
 *
 * An unchanged program starts background processes on purpose: the maintenance of git, build
 * daemons, `nohup … &`. They must survive the command that starts them, as with Node's functions.
 */
export function keepDescendants<Options extends object>(options: Options): Options {
  const { onLeaderExit } = options as { onLeaderExit?: unknown }
  return { ...options, onLeaderExit: onLeaderExit ?? fromEnvironment(), [DROP_IN]: true }
}

function fromEnvironment(): string {
  const value = process.env[VARIABLE] || 'keep'
  if (value !== 'keep' && value !== 'kill') throw invalidValue(VARIABLE, value, "must be 'kill' or 'keep'")
  return value
}
