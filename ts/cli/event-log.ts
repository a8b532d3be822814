// Parses the lines of orphan-events.log. Pure.

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

/** Returns the paths of the rotated file and of the current file. */
export function eventLogOf(registryPath: string): string[] {
  const path = join(dirname(registryPath), 'orphan-events.log')
  return [`${path}.1`, path]
}

const LINE =
  /^(\S+) (DETECTED|KILLED|SKIPPED|FAILED) pid=(\d+) cmd=("(?:[^"\\]|\\.)*") age=(\S+) status=(\S+) reason=("(?:[^"\\]|\\.)*")$/

/** Parses a line. undefined for an incomplete line, or a line of another program. */
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
