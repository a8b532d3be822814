// adopt: a handle for a run that has outlived its bot.

import type { RunRecord } from '../index.js'
import { AdoptedRun } from './adopted-run.js'
import { checkString } from './checks.js'
import { codedError } from './errors.js'
import * as native from './native.js'
import type { Owner } from './owner.js'
import { isOver } from './records.js'
import { keyOf } from './registry.js'

const pending = new WeakMap<Owner, Map<string, Promise<AdoptedRun>>>()

/** Whoever asks twice gets the same handle twice. */
export async function adopt(owner: Owner, runId: string): Promise<AdoptedRun> {
  checkString(runId, 'runId')
  owner.refuseWhileClosing('taken over')
  const { live, ended } = owner.runs.named(runId)
  if (live instanceof AdoptedRun) return live
  if (live) throw alreadyOwned(runId)
  const record = find(owner, runId)
  if (record && !hasEnded(record)) return takeOver(owner, record)
  if (ended instanceof AdoptedRun) return ended
  if (record) return takeNote(owner, record)
  throw notFound(owner, runId)
}

/** What is being taken over, by key. */
export function pendingAdoptions(owner: Owner): ReadonlyMap<string, Promise<AdoptedRun>> {
  return pendingOf(owner)
}

/** Makes a run ours that its record leads to. If it has ended by then, the handle says how. */
export function takeOver(owner: Owner, record: RunRecord): Promise<AdoptedRun> {
  const key = keyOf(record)
  const under = pendingOf(owner)
  const before = under.get(key)
  if (before) return before
  const adoption = take(owner, record).finally(() => under.delete(key))
  under.set(key, adoption)
  return adoption
}

async function take(owner: Owner, record: RunRecord): Promise<AdoptedRun> {
  const registry = owner.writing()
  const run = new AdoptedRun(record, owner)
  try {
    const taken = await native.adopt(registry.native, keyOf(record), (event) => run.onNative(event))
    run.taken(taken, claimed(owner, record))
    return run
  } catch (error) {
    const now = find(owner, record.runId)
    if (now && keyOf(now) === keyOf(record) && hasEnded(now)) return takeNote(owner, now)
    throw error
  }
}

/** The record as it is with us as the owner, which it may have been already. */
function claimed(owner: Owner, record: RunRecord): RunRecord {
  if (record.ownerInstanceId === owner.instanceId) return record
  const now = find(owner, record.runId)
  return now && keyOf(now) === keyOf(record) ? now : record
}

/** Its end was written down for the next bot. If nothing is left of it, its entry has served its purpose. */
async function takeNote(owner: Owner, record: RunRecord): Promise<AdoptedRun> {
  const registry = owner.writing()
  const run = new AdoptedRun(record, owner)
  run.found()
  if (isOver(record)) {
    try {
      const taken = await native.adopt(registry.native, keyOf(record), () => {})
      taken.forget()
    } catch {
      // Somebody else has taken note of it, or a reaper will.
    }
  }
  return run
}

/** The one that lives, if there is one. */
function find(owner: Owner, runId: string): RunRecord | undefined {
  const records = owner.registry.list({ runId }).filter((record) => record.runId === runId)
  return records.find((record) => !hasEnded(record)) ?? records[0]
}

const hasEnded = ({ state }: RunRecord) => state === 'exited'

function pendingOf(owner: Owner): Map<string, Promise<AdoptedRun>> {
  const map = pending.get(owner) ?? new Map<string, Promise<AdoptedRun>>()
  pending.set(owner, map)
  return map
}

function notFound(owner: Owner, runId: string): Error {
  return codedError(
    Error,
    'ERR_OWNED_NOT_FOUND',
    `No run "${runId}" is in the registry ${owner.registryPath}. It has ended, or its bot used another registryPath; list() shows what there is.`,
  )
}

function alreadyOwned(runId: string): Error {
  return codedError(
    Error,
    'ERR_OWNED_ALREADY_OWNED',
    `Run "${runId}" was started by this supervisor; use the OwnedProcess that spawnOwned returned.`,
  )
}
