// Processes that ended bots have left, and the records that those bots wrote.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { captureStartToken } from 'spawn-owned'
import { program } from './fixtures.mjs'
import { isWindows } from './system.mjs'
import { openWitness } from './witness.mjs'

/**
 * A ready process without an owner. It leads its group unless `detached` is false. It ends with the
 * test at the latest.
 */
export async function abandoned(t, { detached = true, fixture = 'stays', ready = 1 } = {}) {
  const witness = openWitness(t)
  // Compile first, because it may take seconds and the age of the process matters.
  const path = program(fixture)
  const startedAt = Date.now()
  const child = spawn(path, [witness.path], { detached, stdio: 'ignore' })
  await witness.ready(ready)
  return { pid: child.pid, startedAt, startToken: captureStartToken(child.pid), witness, detached }
}

/** A process that has exited: its PID and start token. */
export function gone() {
  const child = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
  const token = captureStartToken(child.pid)
  child.stdin.end()
  return once(child, 'exit').then(() => ({ pid: child.pid, token }))
}

/** The record of an ended bot for a process that it had registered. */
export async function recordOf({ pid, startedAt, startToken, detached }, more) {
  const bot = await gone()
  return {
    pid,
    startedAt,
    sessionId: null,
    botPid: bot.pid,
    commandPreview: 'left by another',
    runId: `run-${pid}`,
    state: 'running',
    startToken,
    botStartToken: bot.token,
    ownerInstanceId: 'another',
    leaseExpiresAtMs: startedAt + 30_000,
    ...(detached && !isWindows
      ? { pgid: pid, containment: 'group' }
      : { pgid: null, containment: 'process' }),
    graceMs: 1000,
    onOwnerExit: 'keep',
    createdAtMs: startedAt,
    updatedAtMs: startedAt,
    lastOutputAtMs: null,
    ...more,
  }
}
