// replaceExistingScope: a run that starts only when the earlier ones of its scope are gone.

import { cancelMatching } from './cancel.js'
import { codedError } from './errors.js'
import type { OwnedProcess } from './owned-process.js'
import type { Owner } from './owner.js'

/**
 * Whether a run has to wait for others to end. It is asked before anything is started, so it looks at the registry here and now;
 * that costs a `stat` unless the file has changed.
 */
export function mustReplace(owner: Owner, scopeKey: string): boolean {
  return (
    owner.runs.findLive((run) => run.scopeKey === scopeKey).length > 0 || owner.registry.hasScope(scopeKey)
  )
}

/**
 * Ends the scope's earlier runs, whichever bot they belong to, also those that wait to be started themselves. Resolves when
 * nothing of them exists.
 *
 * Two runs of this supervisor cannot both get past this: the later one finds the earlier, running or waiting. Those of two bots
 * can, if neither is in the registry yet when the other looks.
 */
export async function clearScope(owner: Owner, scopeKey: string, successor: OwnedProcess): Promise<void> {
  const { exits } = await cancelMatching(
    owner,
    { scopeKey },
    (run) => run.scopeKey === scopeKey && run !== successor,
  )
  const survivor = exits.flatMap((exit) => exit.survivors)[0]
  if (survivor) {
    throw codedError(
      Error,
      'ERR_OWNED_SCOPE_BUSY',
      `An earlier run of scope "${scopeKey}" could not be ended: process ${survivor.pid} (${survivor.command}), ${survivor.why}. ` +
        'Nothing was started.',
    )
  }
}
