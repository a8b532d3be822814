// Suspects: processes that can be orphans although the registry has no entry for them.

import { realpathSync } from 'node:fs'
import { parse, resolve } from 'node:path'
import type { SettledSuspect, Suspect, SuspectOptions } from '../../index.js'
import type { NamedProcess } from '../registry/registry.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { invalidValue } from '../util/errors.js'
import { checkString, preview } from '../util/validation.js'
import { aboutSuspect, emitOnly, logAndEmit } from './orphan-events.js'
import { type Matcher, readPatterns } from './suspect-patterns.js'

/** What makes a process a suspect. */
export interface Suspicion {
  readonly matcher: Matcher
  readonly project: string | undefined
}

export function readSuspicion({ patterns, projectDir }: SuspectOptions): Suspicion {
  return { matcher: readPatterns(patterns), project: projectOf(projectDir) }
}

/** Returns the project directory without symbolic links. The root directory is no project. */
function projectOf(given: unknown): string | undefined {
  if (given !== undefined) checkString(given, 'options.projectDir')
  let path: string
  try {
    path = resolve(given ?? process.cwd())
  } catch {
    // The current directory does not exist, so no process can be found by it.
    return undefined
  }
  try {
    path = realpathSync(path)
  } catch {
    // The directory cannot be reached. Processes in it are found by its path as given.
  }
  if (path !== parse(path).root) return path
  if (given === undefined) return undefined
  throw invalidValue(
    'options.projectDir',
    given,
    'must not be the root of the file system, because it contains all processes',
  )
}

/**
 * Returns the suspects.
 *
 * `toEnd`: the caller terminates them. Then an unreadable registry is an error: a suspect can be a
 * run in the part that could not be read.
 */
export async function findSuspects(
  context: SupervisorContext,
  { matcher, project }: Suspicion,
  toEnd = false,
): Promise<Suspect[]> {
  const processes = await context.registry.suspects(project, toEnd)
  return processes.flatMap((it) => {
    const pattern = matcher(it.names)
    return pattern === undefined ? [] : [suspectOf(it, pattern, project)]
  })
}

function suspectOf(it: NamedProcess, pattern: string, project: string | undefined): Suspect {
  const { pid, startToken, ageMs, ppid, cwd, words, inProject, owner } = it
  const place = inProject ? [`runs in ${project}`] : []
  const descent = owner === null ? [] : [`descends from bot ${owner}`]
  const reason = listed([`matches "${pattern}"`, ...place, ...descent])
  return { pid, startToken, command: preview(words.join(' ')), ageMs, ppid, cwd, pattern, reason }
}

/** `a, b and c` */
function listed(parts: readonly string[]): string {
  return `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`
}

export interface EndSettings {
  dryRun: boolean
  force: boolean
  olderThanMs: number
  graceMs: number
}

/** Terminates the suspects if `force` is set. Otherwise it only reports them. */
export async function settleSuspects(
  context: SupervisorContext,
  suspects: readonly Suspect[],
  { project }: Suspicion,
  { dryRun, force, olderThanMs, graceMs }: EndSettings,
): Promise<SettledSuspect[]> {
  const detected = suspects.map((it) => aboutSuspect('orphan:detected', it, it.reason, dryRun))
  const planned = suspects.map((it): SettledSuspect => ({ ...it, ...planFor(it, force, olderThanMs) }))
  if (dryRun) {
    emitOnly(context, detected)
    return planned
  }
  await logAndEmit(context, detected)
  const due = planned.filter(({ outcome }) => outcome === 'planned')
  const startTokens = due.map(({ startToken }) => startToken)
  const ended = due.length > 0 ? await context.writing().endSuspects({ startTokens, project, graceMs }) : []
  const outcomes = new Map(due.map((it, index) => [it, ended[index]]))
  const settled = planned.map((it): SettledSuspect => ({ ...it, ...outcomes.get(it) }))
  await logAndEmit(context, settled.map(eventOf))
  return settled
}

/** Decides about a suspect. A dry run reports this decision, a real run carries it out. */
function planFor(
  { ageMs }: Suspect,
  force: boolean,
  olderThanMs: number,
): Pick<SettledSuspect, 'outcome' | 'error'> {
  if (!force) return { outcome: 'reported' }
  if (ageMs < olderThanMs)
    return { outcome: 'skipped', error: `it was started less than ${olderThanMs} ms ago` }
  return { outcome: 'planned' }
}

function eventOf(it: SettledSuspect) {
  switch (it.outcome) {
    case 'ended':
      return aboutSuspect('orphan:killed', it, it.reason, false)
    case 'failed':
      return aboutSuspect('orphan:failed', it, it.error ?? it.reason, false)
    case 'skipped':
      return aboutSuspect('orphan:skipped', it, it.error ?? it.reason, false)
    default:
      return aboutSuspect(
        'orphan:skipped',
        it,
        `only suspected: it is terminated only with force (${it.reason})`,
        false,
      )
  }
}
