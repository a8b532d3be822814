// replaceExistingScope: a run that starts only when the earlier ones of its scope are gone.

import type { RunExit } from '../index.js'
import { cancelMatching } from './cancel.js'
import { codedError } from './errors.js'
import type { OwnedProcess } from './owned-process.js'
import type { Owner } from './owner.js'

/** How soon, and for how long, it is tried again if another bot is about to start something there. */
const RETRY_MS = 20
const PATIENCE_MS = 10_000

/** Starts it now, if the scope is empty. That needs a lock and a look at the registry, and waits for neither. */
export function startIfEmpty(owner: Owner, scopeKey: string, start: () => void): boolean {
  const ours = owner.runs.findLive((run) => run.scopeKey === scopeKey)
  return ours.length === 0 && owner.writing().inEmptyScope(scopeKey, start)
}

/**
 * Ends the scope's earlier runs, whichever bot they belong to, also those of this supervisor that wait to be started themselves,
 * and starts `successor` when nothing of them exists. Rejects if that is not to be had; then nothing was started.
 *
 * Another bot may be doing the same: of two that find the scope empty, one gets the lock, and the other finds its run and ends it.
 */
export async function startInTurn(
  owner: Owner,
  scopeKey: string,
  successor: OwnedProcess,
  start: () => void,
): Promise<void> {
  const isWaiting = () => successor.state === 'starting'
  const giveUpAt = performance.now() + PATIENCE_MS
  while (isWaiting()) {
    const { exits } = await cancelMatching(
      owner,
      { scopeKey },
      (run) => run.scopeKey === scopeKey && run !== successor,
    )
    refuseSurvivors(scopeKey, exits)
    if (!isWaiting() || owner.registry.inEmptyScope(scopeKey, start)) return
    if (performance.now() > giveUpAt) throw contested(scopeKey)
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
  }
}

export function refuseSurvivors(scopeKey: string, exits: readonly RunExit[]): void {
  const survivor = exits.flatMap((exit) => exit.survivors)[0]
  if (!survivor) return
  throw codedError(
    Error,
    'ERR_OWNED_SCOPE_BUSY',
    `An earlier run of scope "${scopeKey}" could not be ended: process ${survivor.pid} (${survivor.command}), ${survivor.why}. ` +
      'Nothing was started.',
  )
}

function contested(scopeKey: string): Error {
  return codedError(
    Error,
    'ERR_OWNED_SCOPE_BUSY',
    `Other bots keep starting runs in scope "${scopeKey}". Nothing was started; let one bot have a scope.`,
  )
}
