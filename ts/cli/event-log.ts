// The lines of orphan-events.log. Pure.

import { dirname, join } from 'node:path'

export const DECISIONS = ['DETECTED', 'KILLED', 'SKIPPED', 'FAILED'] as const

export interface Decision {
  readonly at: string
  readonly what: (typeof DECISIONS)[number]
  readonly pid: number
  readonly command: string
  readonly age: string
  readonly status: string
  readonly reason: string
}

/** The file before it was rotated, and the file. */
export function eventLogOf(registryPath: string): string[] {
  const path = join(dirname(registryPath), 'orphan-events.log')
  return [`${path}.1`, path]
}

const LINE =
  /^(\S+) (DETECTED|KILLED|SKIPPED|FAILED) pid=(\d+) cmd=("(?:[^"\\]|\\.)*") age=(\S+) status=(\S+) reason=("(?:[^"\\]|\\.)*")$/

/** Nothing for a line that is torn, or somebody else's. */
export function parseDecision(line: string): Decision | undefined {
  const [, at, what, pid, command, age, status, reason] = LINE.exec(line) ?? []
  if (at === undefined) return undefined
  try {
    return {
      at,
      what: what as Decision['what'],
      pid: Number(pid),
      command: JSON.parse(command as string),
      age: age as string,
      status: status as string,
      reason: JSON.parse(reason as string),
    }
  } catch {
    return undefined
  }
}
