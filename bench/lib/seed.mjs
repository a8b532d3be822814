/**
 * Registries of any size without as many processes: files as a bot with that many runs would have
 * left them.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { captureStartToken } from 'spawn-owned'

/** No process has such a PID: the kernel's limit is 4,194,304. */
const FIRST_PID = 5_000_000

/** `count` runs of the owner with this start token. Their own processes do not exist. */
export function seedEntries(count, ownerToken) {
  const [botPid, start, namespace, boot] = ownerToken.split(':')
  const now = Date.now()
  return Array.from({ length: count }, (_, index) => {
    const pid = FIRST_PID + 2 * index
    const token = (number) => `${number}:${start}:${namespace}:${boot}`
    return {
      pid,
      startedAt: now,
      sessionId: `session-${index % 50}`,
      botPid: Number(botPid),
      commandPreview: 'claude --print --output-format stream-json --resume 0b1c2d3e',
      runId: `seed-${index}`,
      state: 'running',
      startToken: token(pid),
      botStartToken: ownerToken,
      ownerInstanceId: 'seed',
      leaseExpiresAtMs: now + 3_600_000,
      pgid: pid,
      containment: 'keeper',
      keeper: { startToken: token(pid + 1), address: `spawn-owned/seed/${index}` },
      graceMs: 5000,
      onOwnerExit: 'kill',
      createdAtMs: now,
      updatedAtMs: now,
      lastOutputAtMs: null,
    }
  })
}

/** One entry per line, as the library writes it. */
export function writeRegistry(path, entries) {
  const lines = entries.map((entry) => JSON.stringify(entry)).join(',\n    ')
  writeFileSync(path, `{\n  "version": 1,\n  "entries": [\n    ${lines}\n  ]\n}\n`, { mode: 0o600 })
}

/** The start token of a process that has ended. */
export async function tokenOfTheDead() {
  const child = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
  const token = captureStartToken(child.pid)
  child.stdin.end()
  await once(child, 'exit')
  return token
}
