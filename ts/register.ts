// registerProcess and unregisterProcess: processes that somebody else has started.

import type { RegisterEntry, RunFilter, RunRecord } from '../index.js'
import { isRun, pidOfStranger } from './cancel.js'
import { checkObject, checkPid, checkRunId, duration, optionalText, preview, readLabels } from './checks.js'
import { codedError } from './errors.js'
import { isSpawned, matchingTarget } from './filters.js'
import { freshId } from './ids.js'
import type { Owner } from './owner.js'

export function register(owner: Owner, entry: RegisterEntry): RunRecord {
  checkObject(entry, 'entry')
  checkPid(entry.pid, 'entry.pid')
  const text = (name: keyof RegisterEntry) => optionalText(entry, name, 'entry')
  const runId = text('runId')
  const commandPreview = text('commandPreview')
  const complete = {
    pid: entry.pid,
    runId: runId === undefined ? freshId() : checkRunId(runId, 'entry.runId'),
    givenId: runId !== undefined,
    sessionId: text('sessionId'),
    backendId: text('backendId'),
    scopeKey: text('scopeKey'),
    commandPreview: commandPreview === undefined ? undefined : preview(commandPreview),
    labels: readLabels(entry.labels, 'entry.labels'),
    graceMs: Math.trunc(duration(entry.graceMs, 'entry.graceMs') ?? owner.graceMs),
  }
  owner.refuseWhileClosing('registered')
  refuseLiveRun(owner, complete.runId)
  return owner.writing().register(complete)
}

/** All or nothing: a target that means a run of spawnOwned too is refused before anything is removed. */
export function unregister(owner: Owner, target: unknown): boolean {
  const meant = isRun(target) ? target.runId : pidOfStranger(target)
  const matches = matchingTarget(meant)
  const records = owner.registry.own(...sought(meant)).filter(matches)
  const owned = records.find(isSpawned) ?? owner.runs.findLive(matches)[0]
  if (owned) throw stillOwned(owned.runId)
  return records.length > 0 && owner.writing().unregister(records) > 0
}

/** The usual targets are found without looking at all entries. */
function sought(target: unknown): [runId: string | undefined, pid: number | undefined] {
  if (typeof target === 'string') return [target, undefined]
  const { runId, pid } = target as RunFilter
  return [runId, pid]
}

function refuseLiveRun(owner: Owner, runId: string): void {
  if (!owner.runs.isLive(runId)) return
  throw codedError(
    Error,
    'ERR_OWNED_DUPLICATE_RUN',
    `entry.runId "${runId}" names a run that is alive. Cancel it first, or choose another id.`,
  )
}

function stillOwned(runId: string): Error {
  return codedError(
    Error,
    'ERR_OWNED_STILL_OWNED',
    `Run "${runId}" is a run of spawnOwned; its entry goes when it ends. Cancel it instead.`,
  )
}
