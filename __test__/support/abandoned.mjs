// Processes as bots that are gone have left them, and what those bots have written about them.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { captureStartToken } from 'spawn-owned'
import { program } from './fixtures.mjs'
import { isWindows } from './system.mjs'
import { openWitness } from './witness.mjs'

/** A process that stands and belongs to nobody; it leads its group unless `detached` is false. It ends with the test at the latest. */
export async function abandoned(t, { detached = true, fixture = 'stays', ready = 1 } = {}) {
  const witness = openWitness(t)
  // Compiling it may take seconds, and its age counts.
  const path = program(fixture)
  const startedAt = Date.now()
  const child = spawn(path, [witness.path], { detached, stdio: 'ignore' })
  await witness.ready(ready)
  return { pid: child.pid, startedAt, startToken: captureStartToken(child.pid), witness, detached }
}

/** A process that is no more, by number and by name. */
export function gone() {
  const child = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
  const token = captureStartToken(child.pid)
  child.stdin.end()
  return once(child, 'exit').then(() => ({ pid: child.pid, token }))
}

/** What a bot that is gone has written about a process it had registered. */
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
