/** What must be true of every round, whatever was done in it. Pure: facts in, violations out. */

/** Why a run may have ended, and what may then be said of it. */
const REASONS = {
  cancel: ['manual-cancel'],
  deadline: ['overall-timeout'],
  silence: ['no-output-timeout'],
  shutdown: ['shutdown'],
  'root left': ['exit', 'ownership-escape'],
  'root killed': ['signal', 'ownership-escape'],
  'keeper killed': ['lost'],
  'owner gone': ['owner-exit'],
  reaped: ['owner-exit'],
  // Some exit, and Node aborts.
  'no forks': ['exit', 'signal', 'ownership-escape', 'spawn-error'],
  'by itself: exit': ['exit'],
  'by itself: signal': ['signal'],
  'by itself: spawn-error': ['spawn-error'],
}

const reasonsFor = ({ causes, keeperStopped }) => [
  ...causes.flatMap((cause) => (cause.startsWith('failed: ') ? ['spawn-error'] : REASONS[cause])),
  // A keeper that does not do its part is killed, by whoever has asked it to.
  ...(keeperStopped ? ['lost'] : []),
]

/** Nobody is left who could find what stays of it, by what nobody promises. */
const isBeyondReach = ({ lost, traceable, registryLost, isKept }) =>
  (registryLost && isKept) ||
  (lost.includes('keeper') && lost.includes('zygote') && (!traceable || registryLost))

/** By how much a bot may have grown. Slow growth takes thousands of runs to be seen: that is for the soak. */
const ALLOWANCE = { fds: 0, threads: 4, zombies: 0, helpers: 0, rssKb: 65_536 }

export const invariants = [
  {
    name: 'no survivor',
    check: ({ runs, claims, reports, final }) => [
      ...claims
        .filter(({ hasBegun, survivors, isGone }) => hasBegun && survivors === 0 && isGone === false)
        .filter(({ run }) => !isExcused(runs, run))
        .map(
          ({ who, run, reason, step }) =>
            `${who} said at step ${step} that ${run} is over (${reason}), and it was not`,
        ),
      ...reports
        .filter(({ dryRun }) => !dryRun)
        .flatMap(({ by, step, decisions }) => decisions.map((decision) => ({ by, step, ...decision })))
        .filter(
          ({ outcome, isGone }) => (outcome === 'ended' || outcome === 'already-dead') && isGone === false,
        )
        .filter(({ runId }) => !isExcused(runs, runId))
        .map(
          ({ by, runId, outcome, step }) =>
            `the report of ${by} at step ${step} says ${outcome} of ${runId}, and it is alive`,
        ),
      ...final.alone.map(
        ({ run, who }) => `${run} has survived its bot, though it had a keeper or a zygote:\n${who}`,
      ),
      ...final.survivors
        .filter(({ run }) => !isExcused(runs, run))
        .map(({ run, who }) => `${run} has survived everything:\n${who}`),
      ...final.processes.map((who) => `somebody is left: ${who}`),
    ],
  },
  {
    name: 'no bystander',
    check: ({ strangers, runs }) => [
      ...strangers
        .filter(({ endedAt }) => endedAt !== undefined)
        .map(({ who, pid, endedAt }) => `a stranger was ended at step ${endedAt}: ${who} (${pid})`),
      ...runs
        .filter(
          ({ isStranger, endedAt, causes }) => isStranger && endedAt !== undefined && causes.length === 0,
        )
        .map(({ name, endedAt }) => `${name}, which was unregistered, was ended at step ${endedAt}`),
    ],
  },
  {
    name: 'no process without a record',
    check: ({ runs }) =>
      runs
        .filter((run) => run.unrecorded && !isBeyondReach(run))
        .map(({ name, unrecorded }) => `${name}: ${unrecorded}`),
  },
  {
    name: 'no record without a decision',
    check: ({ runs, reports, final }) => [
      ...final.entries.map((runId) => `${runId} is in the registry after everything`),
      ...reports.flatMap(({ by, step, alive, decisions }) =>
        alive
          .filter((run) => !decisions.some(({ runId }) => runId === run) && !isExcused(runs, run))
          .map((run) => `the report of ${by} at step ${step} says nothing of ${run}, whose bot is gone`),
      ),
      ...final.overlooked
        .filter(({ run }) => !isExcused(runs, run))
        .map(({ bot, run }) => `bot ${bot} watches for orphans and ends them, and it has left ${run}`),
      ...(final.couldNotLog ? [] : killedOf(reports))
        .filter(({ pid }) => !final.log.some((line) => line.includes(` KILLED pid=${pid} `)))
        .map(({ runId }) => `${runId} was reported as killed, and the event log does not say so`),
    ],
  },
  {
    name: 'killed once',
    check: ({ reports, kills }) => {
      const reported = killedOf(reports).map(({ by, runId }) => ({ by, run: runId }))
      // Of what a bot has reaped it tells twice: as it happens, and in the report.
      const others = kills.filter(({ by, run }) => !reported.some((it) => it.by === by && it.run === run))
      return [kills, [...reported, ...others]]
        .flatMap((told) => repeated(told.map(({ run }) => run)))
        .map((run) => `${run} was reported as killed twice`)
    },
  },
  {
    name: 'the registry is valid whenever it is read',
    check: ({ reads }) => reads.invalid,
  },
  {
    name: 'reasons are true',
    check: ({ runs }) =>
      runs.flatMap((run) =>
        run.exits.flatMap((exit) => falseReason(run, exit).map((why) => `${run.name} (${run.what}): ${why}`)),
      ),
  },
  {
    name: 'signals and words arrive',
    check: ({ runs, undelivered }) => [
      ...undelivered,
      ...runs
        .filter(({ says, said, exits }) => said !== undefined && said !== says && exits.some(hasSaidAll))
        .map(({ name, says, said }) => `${name} has said ${says} bytes, and ${said} were heard`),
    ],
  },
  {
    name: 'orders are answered, and refused with a code',
    check: ({ orders, bots }) => [
      ...orders
        .filter(({ outcome, isLate }) => outcome === 'unanswered' || (isLate && outcome !== 'done'))
        .filter(({ bot }) => !isExpectedToEnd(bots, bot))
        .map(({ bot, order, step }) => `${bot} has not answered ${order} of step ${step}`),
      ...orders
        .filter(({ outcome, code }) => outcome === 'refused' && !/^E[A-Z_]+$/.test(code ?? ''))
        .map(
          ({ bot, order, step, message }) =>
            `${bot} refused ${order} of step ${step} without a code: ${message}`,
        ),
    ],
  },
  {
    name: 'bots stay as they are',
    check: ({ bots }) =>
      bots
        .filter(({ before, after }) => before && after)
        .flatMap(({ name, before, after, ...bot }) =>
          Object.keys(ALLOWANCE)
            .filter((it) => after[it] > before[it] + ALLOWANCE[it] + leftByOthers(it, bot))
            .map((it) => `bot ${name} had ${before[it]} ${it}, and has ${after[it]} after its last run`),
        ),
  },
  {
    name: 'bots live until they are ended',
    check: ({ bots }) =>
      bots
        .filter(({ expected, how }) => expected === undefined && how !== undefined)
        .map(({ name, how, complaint }) => `bot ${name} has ended by itself (${how}):\n${complaint}`),
  },
]

/** What others leave: a zygote that was killed is waited for when the next one is needed; libuv keeps what it watches files with, and Node an
 * end of each IPC channel whose process it could not start for want of descriptors. */
export function leftByOthers(what, { hasLostZygote, hasWatched, channelsLost = 0 }) {
  if (what === 'zombies') return hasLostZygote ? 1 : 0
  return what === 'fds' ? channelsLost + (hasWatched ? 1 : 0) : 0
}

const killedOf = (reports) =>
  reports.flatMap(({ by, decisions }) =>
    decisions.filter(({ outcome }) => outcome === 'ended').map((decision) => ({ by, ...decision })),
  )

const repeated = (list) => [...new Set(list.filter((it, index) => list.indexOf(it) !== index))]

/** It exits like that only if it could write all of it. */
const hasSaidAll = ({ reason, exitCode }) => reason === 'exit' && exitCode === 0

const isExcused = (runs, name) => {
  const run = runs.find((it) => it.name === name)
  return run !== undefined && isBeyondReach(run)
}

const isExpectedToEnd = (bots, name) => bots.find((bot) => bot.name === name)?.expected !== undefined

function falseReason(run, exit) {
  const { reason, exitCode, signal, timedOut, noOutputTimedOut, durationMs } = exit
  const allowed = reasonsFor(run)
  const wrong = []
  if (allowed.length === 0) wrong.push(`it ended as ${reason}, and nobody had done anything to it`)
  else if (!allowed.includes(reason))
    wrong.push(`it ended as ${reason}, but only ${allowed.join(' or ')} can be true`)
  if (reason === 'ownership-escape' && !run.hasEscapees)
    wrong.push('nobody could escape, and somebody is said to have')
  if (reason === 'exit' && exitCode === null) wrong.push('it exited, and without a code')
  if (reason === 'signal' && signal === null) wrong.push('it was ended by a signal, and nobody says by which')
  if (timedOut !== reason.endsWith('-timeout')) wrong.push(`timedOut is ${timedOut}, the reason ${reason}`)
  if (noOutputTimedOut !== (reason === 'no-output-timeout'))
    wrong.push(`noOutputTimedOut is ${noOutputTimedOut}, the reason ${reason}`)
  const { timeoutMs, noOutputTimeoutMs } = run.options
  // A keeper that was stopped has heard of it too late.
  const deadline = timeoutMs + (run.keeperStopped ? 0 : (run.extendedMs ?? 0))
  if (reason === 'overall-timeout' && durationMs < deadline)
    wrong.push(`a deadline of ${deadline} ms was over after ${durationMs}`)
  if (reason === 'no-output-timeout' && durationMs < noOutputTimeoutMs)
    wrong.push(`a silence of ${noOutputTimeoutMs} ms was over after ${durationMs}`)
  return wrong
}

/** `{ invariant, what }`, one for each thing that is not as it must be. */
export const violationsOf = (facts) =>
  invariants.flatMap(({ name, check }) => check(facts).map((what) => ({ invariant: name, what })))
