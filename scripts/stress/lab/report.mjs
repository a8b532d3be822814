/** The text that the lab prints. Pure: plans, violations and figures in, text out. */

import { moveNamed } from './moves.mjs'

/** The steps, one per line, with their numbers in the plan. */
export const traceOf = ({ steps }) =>
  steps.map((step) => `  ${String(step.number).padStart(2)}  ${describeStep(step)}`).join('\n')

function describeStep({ afterMs, awaited, ...step }) {
  const pause = afterMs ? `after ${afterMs} ms, ` : ''
  return `${pause}${moveNamed(step.do).describe(step)}${awaited ? ' (awaited)' : ''}`
}

export const replayOf = ({ seed, steps }, isWhole) =>
  `npm run stress -- --replay ${seed}${isWhole ? '' : ` --steps ${steps.map(({ number }) => number).join(',')}`}`

const settingOf = ({ pids, lookAlikes, curtain, ownSession, isUnprivileged }) =>
  [
    `PIDs from ${pids.first} to ${pids.last}`,
    lookAlikes ? 'look-alikes with almost its cookie beside run-a' : 'no look-alikes',
    ownSession ? 'the lab in a session of its own' : 'the lab in a group of another namespace',
    isUnprivileged ? 'the bots are unprivileged' : 'the bots are root',
    `in the end the bots ${{ kill: 'are killed', leave: 'exit', shutdown: 'shut down' }[curtain]}`,
  ].join(' · ')

/** `name`: name of a saved finding, for the replay command. */
export function failureOf(plan, { violations, whole, often, name }) {
  const unique = [...new Map(violations.map((it) => [`${it.invariant} ${it.what}`, it])).values()]
  return [
    `✗ ${name ?? `seed ${plan.seed}`}: ${[...new Set(unique.map(({ invariant }) => invariant))].join(', ')}`,
    ...unique.map(({ invariant, what }) => `    ${invariant}: ${what.replaceAll('\n', '\n    ')}`),
    `  ${plan.steps.length} of ${whole.steps.length} steps are enough${often ? ` (${often})` : ''}:`,
    traceOf(plan),
    `   –  ${settingOf(plan.setting)}`,
    `  again: ${name ? `npm run stress -- --replay ${name}` : replayOf(plan, plan.steps.length === whole.steps.length)}`,
  ].join('\n')
}

/** All counts in one line. */
export function summaryOf({ rounds, steps, moot, runs, bystanders, reads, failures, ms }) {
  return [
    `${rounds} rounds`,
    `${steps} steps (${moot} skipped)`,
    `${runs} runs`,
    `${bystanders} bystanders`,
    `${reads} reads of the registry`,
    failures === 0 ? 'no violation' : `${failures} rounds with violations`,
    `${(ms / 1000).toFixed(0)} s`,
  ].join(' · ')
}
