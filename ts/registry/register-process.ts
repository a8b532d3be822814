// registerProcess and unregisterProcess: entries for processes that spawnOwned did not start.

import type { ChildProcess } from 'node:child_process'
import type { RegisterEntry, RunFilter, RunRecord } from '../../index.js'
import { actingOn, cancelMatching, isRun } from '../run/cancel.js'
import { hasExited, isChildProcess, presentToken, rememberToken } from '../run/child-identity.js'
import { byToken, isSpawned, type Matcher, readTarget } from '../run/run-filters.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { codedError, invalidType, invalidValue } from '../util/errors.js'
import { REGISTER } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { clearTimeout, setTimeout } from '../util/timers.js'
import { freshId } from '../util/unique-id.js'
import { checkPid, checkRunId, duration, optionalText, preview, readLabels } from '../util/validation.js'

export function register(context: SupervisorContext, entry: RegisterEntry): RunRecord {
  const given = readOptions(entry ?? null, REGISTER, { of: 'registerProcess', name: 'entry' })
  const { pid } = given
  checkPid(pid, 'entry.pid')
  const text = (name: keyof RegisterEntry) => optionalText(given, name, 'entry')
  const child = readChild(pid, given.process)
  const runId = text('runId')
  const commandPreview = text('commandPreview')
  const complete = {
    pid,
    startToken: text('startToken'),
    runId: runId === undefined ? freshId() : checkRunId(runId, 'entry.runId'),
    givenId: runId !== undefined,
    sessionId: text('sessionId'),
    backendId: text('backendId'),
    scopeKey: text('scopeKey'),
    commandPreview: commandPreview === undefined ? undefined : preview(commandPreview),
    labels: readLabels(given.labels, 'entry.labels'),
    graceMs: Math.trunc(duration(given.graceMs, 'entry.graceMs') ?? context.graceMs),
  }
  const timeoutMs = duration(given.timeoutMs, 'entry.timeoutMs') ?? 0
  context.refuseWhileClosing('registered')
  refuseLiveRun(context, complete.runId)
  const record = context.writing().register(complete)
  // The child had not exited earlier in this tick, so the process with its PID is the child.
  if (child && record.startToken) rememberToken(child, record.startToken)
  if (timeoutMs > 0) endAfter(context, record, timeoutMs)
  return record
}

/** The longest delay of a timer. */
const LONGEST_MS = 2 ** 31 - 1

/**
 * Terminates a registered process when its time is over, unless it has ended or was unregistered.
 *
 * It has no keeper, so the bot measures the time. The timer does not keep the bot alive.
 */
function endAfter(context: SupervisorContext, record: RunRecord, ms: number): void {
  const timer = setTimeout(
    () => {
      context.cleanups.delete(stop)
      if (ms > LONGEST_MS) endAfter(context, record, ms - LONGEST_MS)
      else void endNow(context, record)
    },
    Math.min(ms, LONGEST_MS),
  )
  timer.unref()
  const stop = () => clearTimeout(timer)
  context.cleanups.add(stop)
}

async function endNow(context: SupervisorContext, record: RunRecord): Promise<void> {
  const { runId, pid, startToken } = record
  if (startToken === null || !context.registry.own(runId, pid).some(byToken(startToken))) return
  try {
    await cancelMatching(context, runId, byToken(startToken), { reason: 'overall-timeout' })
  } catch (error) {
    const message = `Process ${pid} (run "${runId}") has reached its timeout and could not be terminated: ${(error as Error).message}`
    context.report({ kind: 'timeout', message })
  }
}

/**
 * Returns the ChildProcess of the entry, if any. Throws if it has exited: its PID can be reused.
 */
function readChild(pid: number, child: unknown): ChildProcess | undefined {
  if (child === undefined) return undefined
  if (!isChildProcess(child)) throw invalidType('entry.process', 'a ChildProcess', child)
  if (child.pid !== pid)
    throw invalidValue('entry.process', child.pid, `must have the same PID as entry.pid (${pid})`)
  if (!hasExited(child)) return child
  throw codedError(
    Error,
    'ERR_OWNED_NO_SUCH_PROCESS',
    `entry.process has exited, and another process can have its PID ${pid}. ` +
      'Register a process in the tick in which it was started.',
  )
}

/** Removes entries. Throws before it removes any if the target includes a run of spawnOwned. */
export function unregister(context: SupervisorContext, target: unknown): boolean {
  if (isChildProcess(target) && !isRun(target)) return unregisterChild(context, target)
  const wanted = isRun(target) ? target.runId : readTarget(target, 'unregisterProcess')
  const matches = actingOn(wanted)
  return remove(context, context.registry.own(...searchKey(wanted)).filter(matches), matches)
}

/** Removes the entry of a child, found by its start token: another process can have its PID. */
function unregisterChild(context: SupervisorContext, child: ChildProcess): boolean {
  const token = presentToken(child)
  if (token === undefined) return false
  const matches = byToken(token)
  return remove(context, context.registry.own(undefined, child.pid).filter(matches), matches)
}

function remove(context: SupervisorContext, records: readonly RunRecord[], matches: Matcher): boolean {
  const owned = records.find(isSpawned) ?? context.runs.findLive(matches)[0]
  if (owned) throw stillOwned(owned.runId)
  return records.length > 0 && context.writing().unregister(records) > 0
}

/**
 * Returns what narrows the search: with a run id or a PID, the registry does not read all entries.
 */
function searchKey(target: string | RunFilter): [runId: string | undefined, pid: number | undefined] {
  if (typeof target === 'string') return [target, undefined]
  const { runId, pid } = target
  return [runId, pid]
}

function refuseLiveRun(context: SupervisorContext, runId: string): void {
  if (!context.runs.isLive(runId)) return
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
    `Run "${runId}" was started by spawnOwned, and its entry is removed when it ends. Cancel it instead.`,
  )
}
