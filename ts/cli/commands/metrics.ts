import type { SurveyedRun } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { DECISIONS, eventLogOf, parseDecision } from '../event-log.js'
import { readFile } from '../regular-file.js'
import { totalsOf } from '../run-display.js'

export async function metrics(context: Context): Promise<Outcome> {
  const samples = samplesOf(await context.supervisor.survey(), pastDecisions(context.supervisor.registryPath))
  if (context.json) context.printJson({ metrics: samples, ...context.problem })
  else context.print(...textOf(samples))
  return 0
}

export interface Sample {
  readonly name: string
  readonly type: 'gauge'
  readonly help: string
  readonly values: readonly { readonly labels: Readonly<Record<string, string>>; readonly value: number }[]
}

function pastDecisions(registryPath: string): string[] {
  return eventLogOf(registryPath).flatMap((path) => {
    try {
      return readFile(path).split('\n')
    } catch {
      return []
    }
  })
}

/** Returns the metrics of the runs and of the event log. Pure. */
export function samplesOf(runs: readonly SurveyedRun[], lines: readonly string[]): Sample[] {
  const states = ['starting', 'running', 'exiting']
  const owners = ['alive', 'dead', 'unknown']
  const ownerOf = ({ owner }: SurveyedRun) => (owner === 'me' ? 'alive' : owner)
  const sum = (of: 'cpuMs' | 'rssBytes' | 'processes') =>
    runs.reduce((total, run) => total + totalsOf(run)[of], 0)
  const one = (value: number) => [{ labels: {}, value }]
  const decisions = lines.map(parseDecision)
  return [
    {
      name: 'spawn_owned_runs',
      type: 'gauge',
      help: 'Runs in the registry, by state.',
      values: states.map((state) => ({
        labels: { state },
        value: runs.filter(({ record }) => record.state === state).length,
      })),
    },
    {
      name: 'spawn_owned_runs_by_owner',
      type: 'gauge',
      help: 'Runs in the registry, by state of their bot.',
      values: owners.map((owner) => ({
        labels: { owner },
        value: runs.filter((run) => ownerOf(run) === owner).length,
      })),
    },
    {
      name: 'spawn_owned_processes',
      type: 'gauge',
      help: 'Live processes of all runs.',
      values: one(sum('processes')),
    },
    {
      name: 'spawn_owned_escaped_processes',
      type: 'gauge',
      help: 'Live processes that have left the session of their run.',
      values: one(runs.flatMap(({ members }) => members).filter(({ escaped }) => escaped).length),
    },
    {
      name: 'spawn_owned_resident_bytes',
      type: 'gauge',
      help: 'Resident memory of all runs.',
      values: one(sum('rssBytes')),
    },
    {
      name: 'spawn_owned_cpu_seconds',
      type: 'gauge',
      help: 'CPU time of the live processes of all runs.',
      values: one(sum('cpuMs') / 1000),
    },
    {
      name: 'spawn_owned_orphan_events',
      type: 'gauge',
      help: 'Lines of the event log, by decision. Decreases when the log is rotated.',
      values: DECISIONS.map((what) => ({
        labels: { decision: what.toLowerCase() },
        value: decisions.filter((decision) => decision?.what === what).length,
      })),
    },
  ]
}

function textOf(samples: readonly Sample[]): string[] {
  const quoted = (labels: Readonly<Record<string, string>>) => {
    const pairs = Object.entries(labels).map(([key, value]) => `${key}="${value}"`)
    return pairs.length > 0 ? `{${pairs.join(',')}}` : ''
  }
  return samples.flatMap(({ name, type, help, values }) => [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} ${type}`,
    ...values.map(({ labels, value }) => `${name}${quoted(labels)} ${value}`),
  ])
}
