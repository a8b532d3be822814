// replaceExistingScope: a run starts only when the earlier runs of its scope are gone.

import type { RunExit } from '../../index.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { codedError } from '../util/errors.js'
import { monotonicMs, setTimeout } from '../util/timers.js'
import { cancelMatching } from './cancel.js'
import type { OwnedProcess } from './owned-process.js'

/** How often, and for how long, to retry while another bot starts a run in the scope. */
const RETRY_MS = 20
const RETRY_LIMIT_MS = 10_000

/**
 * Starts the run now if the scope is empty. Needs the lock and the registry, and waits for neither.
 */
export function startIfEmpty(context: SupervisorContext, scopeKey: string, start: () => void): boolean {
  const ours = context.runs.findLive((run) => run.scopeKey === scopeKey)
  return ours.length === 0 && context.writing().inEmptyScope(scopeKey, start)
}

/**
 * Terminates the earlier runs of the scope, and starts `successor` when none of them exists.
 *
 * The earlier runs can belong to any bot. Runs of this supervisor that wait for their start count
 * too. Rejects if a process survives or the scope stays contested; then nothing was started.
 *
 * Another bot can do the same. If both find the scope empty, one gets the lock and starts its run.
 * The other finds that run and terminates it.
 */
export async function startInTurn(
  context: SupervisorContext,
  scopeKey: string,
  successor: OwnedProcess,
  start: () => void,
): Promise<void> {
  const isWaiting = () => successor.state === 'starting'
  const giveUpAt = monotonicMs() + RETRY_LIMIT_MS
  while (isWaiting()) {
    const { exits } = await cancelMatching(
      context,
      { scopeKey },
      (run) => run.scopeKey === scopeKey && run !== successor,
    )
    refuseSurvivors(scopeKey, exits)
    if (!isWaiting() || context.registry.inEmptyScope(scopeKey, start)) return
    if (monotonicMs() > giveUpAt) throw contested(scopeKey)
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
  }
}

export function refuseSurvivors(scopeKey: string, exits: readonly RunExit[]): void {
  const survivor = exits.flatMap((exit) => exit.survivors)[0]
  if (!survivor) return
  throw codedError(
    Error,
    'ERR_OWNED_SCOPE_BUSY',
    `An earlier run of scope "${scopeKey}" could not be terminated: process ${survivor.pid} (${survivor.command}), ${survivor.why}. ` +
      'Nothing was started. Terminate that process, or choose another scope.',
  )
}

function contested(scopeKey: string): Error {
  return codedError(
    Error,
    'ERR_OWNED_SCOPE_BUSY',
    `Other bots keep starting runs in scope "${scopeKey}". Nothing was started. Use a scope in one bot only.`,
  )
}
