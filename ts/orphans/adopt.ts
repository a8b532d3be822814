// adopt: makes this supervisor the owner of a run that outlived its bot.

import type { RunRecord } from '../../index.js'
import * as native from '../native/addon.js'
import { isOver } from '../registry/record-exit.js'
import { keyOf } from '../registry/registry.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { codedError } from '../util/errors.js'
import { checkString } from '../util/validation.js'
import { AdoptedRun } from './adopted-run.js'

const pending = new WeakMap<SupervisorContext, Map<string, Promise<AdoptedRun>>>()

/** Adopts a run. A second call for the same run returns the same object. */
export async function adopt(context: SupervisorContext, runId: string): Promise<AdoptedRun> {
  checkString(runId, 'runId')
  context.refuseWhileClosing('adopted')
  const { live, ended } = context.runs.named(runId)
  if (live instanceof AdoptedRun) return live
  if (live) throw alreadyOwned(runId)
  const record = find(context, runId)
  if (record && !hasEnded(record)) return takeOver(context, record)
  if (ended instanceof AdoptedRun) return ended
  if (record) return readEnd(context, record)
  throw notFound(context, runId)
}

/** Returns the adoptions in progress, by key. */
export function pendingAdoptions(context: SupervisorContext): ReadonlyMap<string, Promise<AdoptedRun>> {
  return pendingOf(context)
}

/** Adopts the run of a record. If it ends meanwhile, the result contains its exit. */
export function takeOver(context: SupervisorContext, record: RunRecord): Promise<AdoptedRun> {
  const key = keyOf(record)
  const under = pendingOf(context)
  const before = under.get(key)
  if (before) return before
  const adoption = take(context, record).finally(() => under.delete(key))
  under.set(key, adoption)
  return adoption
}

async function take(context: SupervisorContext, record: RunRecord): Promise<AdoptedRun> {
  const registry = context.writing()
  const run = new AdoptedRun(record, context)
  try {
    const taken = await native.adopt(registry.native, keyOf(record), (event) => run.onNative(event))
    run.attached(taken, claimed(context, record))
    return run
  } catch (error) {
    const now = find(context, record.runId)
    if (now && keyOf(now) === keyOf(record) && hasEnded(now)) return readEnd(context, now)
    throw error
  }
}

/** Returns the current record, with this supervisor as the owner. */
function claimed(context: SupervisorContext, record: RunRecord): RunRecord {
  if (record.ownerInstanceId === context.instanceId) return record
  const now = find(context, record.runId)
  return now && keyOf(now) === keyOf(record) ? now : record
}

/** Returns a run whose keeper recorded its end. Removes the entry if no process is left. */
async function readEnd(context: SupervisorContext, record: RunRecord): Promise<AdoptedRun> {
  const registry = context.writing()
  const run = new AdoptedRun(record, context)
  run.hadEnded()
  if (isOver(record)) {
    try {
      const taken = await native.adopt(registry.native, keyOf(record), () => {})
      taken.forget()
    } catch {
      // Another bot has removed the entry, or a reaper will.
    }
  }
  return run
}

/** Returns the record with this run id, preferably of a run that has not ended. */
function find(context: SupervisorContext, runId: string): RunRecord | undefined {
  const records = context.registry.list({ runId }).filter((record) => record.runId === runId)
  return records.find((record) => !hasEnded(record)) ?? records[0]
}

const hasEnded = ({ state }: RunRecord) => state === 'exited'

function pendingOf(context: SupervisorContext): Map<string, Promise<AdoptedRun>> {
  const map = pending.get(context) ?? new Map<string, Promise<AdoptedRun>>()
  pending.set(context, map)
  return map
}

function notFound(context: SupervisorContext, runId: string): Error {
  return codedError(
    Error,
    'ERR_OWNED_NOT_FOUND',
    `No run "${runId}" is in the registry ${context.registryPath}. It has ended, or its bot used another registryPath. list() shows all runs.`,
  )
}

function alreadyOwned(runId: string): Error {
  return codedError(
    Error,
    'ERR_OWNED_ALREADY_OWNED',
    `Run "${runId}" was started by this supervisor. Use the OwnedProcess that spawnOwned returned.`,
  )
}
