// Processes that may be orphans although no entry names them: who they are, and what becomes of them if somebody insists.

import { realpathSync } from 'node:fs'
import { parse, resolve } from 'node:path'
import type { SettledSuspect, Suspect, SuspectOptions } from '../index.js'
import { checkString, preview } from './checks.js'
import { invalidValue } from './errors.js'
import { aboutSuspect, tellAndNote, tellOnly } from './orphan-events.js'
import type { Owner } from './owner.js'
import { type Matcher, readPatterns } from './patterns.js'
import type { NamedProcess } from './registry.js'

/** What makes a process suspicious. */
export interface Suspicion {
  readonly matcher: Matcher
  readonly project: string | undefined
}

export function readSuspicion({ patterns, projectDir }: SuspectOptions): Suspicion {
  return { matcher: readPatterns(patterns), project: projectOf(projectDir) }
}

/** As the system has it, without links. A directory that everything is in says nothing about anybody. */
function projectOf(given: unknown): string | undefined {
  if (given !== undefined) checkString(given, 'options.projectDir')
  let path: string
  try {
    path = resolve(given ?? process.cwd())
  } catch {
    // The current directory is gone, and nobody can be found in it.
    return undefined
  }
  try {
    path = realpathSync(path)
  } catch {
    // Whoever is in a directory that cannot be reached is found by its name.
  }
  if (path !== parse(path).root) return path
  if (given === undefined) return undefined
  throw invalidValue(
    'options.projectDir',
    given,
    'must not be the root of the file system: everybody is in it',
  )
}

export async function findSuspects(owner: Owner, { matcher, project }: Suspicion): Promise<Suspect[]> {
  const processes = await owner.registry.suspects(project)
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

export interface Measures {
  dryRun: boolean
  force: boolean
  olderThanMs: number
  graceMs: number
}

/** Does about suspects what is to be done, which is nothing unless somebody insists. */
export async function settleSuspects(
  owner: Owner,
  suspects: readonly Suspect[],
  { project }: Suspicion,
  { dryRun, force, olderThanMs, graceMs }: Measures,
): Promise<SettledSuspect[]> {
  const detected = suspects.map((it) => aboutSuspect('orphan:detected', it, it.reason, dryRun))
  if (dryRun) {
    tellOnly(owner, detected)
    return suspects.map((it) => ({ ...it, outcome: 'reported' }))
  }
  await tellAndNote(owner, detected)
  const isDue = ({ ageMs }: Suspect) => force && ageMs >= olderThanMs
  const due = suspects.filter(isDue)
  const startTokens = due.map(({ startToken }) => startToken)
  const ended = due.length > 0 ? await owner.writing().endSuspects({ startTokens, project, graceMs }) : []
  const outcomes = new Map(due.map((it, index) => [it, ended[index]]))
  const settled = suspects.map((it): SettledSuspect => {
    if (!force) return { ...it, outcome: 'reported' }
    const tooYoung = { outcome: 'skipped', error: `it was started less than ${olderThanMs} ms ago` } as const
    return { ...it, ...(outcomes.get(it) ?? tooYoung) }
  })
  await tellAndNote(owner, settled.map(toldOf))
  return settled
}

function toldOf(it: SettledSuspect) {
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
        `only suspected: it is ended with force only (${it.reason})`,
        false,
      )
  }
}
