/** What must be true of every round. Pure: facts in, violations out. */

/** Each cause for which a run may end, and the reasons that its end may then have. */
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
  // Some commands exit without fork, and Node aborts.
  'no forks': ['exit', 'signal', 'ownership-escape', 'spawn-error'],
  'by itself: exit': ['exit'],
  'by itself: signal': ['signal'],
  'by itself: spawn-error': ['spawn-error'],
}

const reasonsFor = ({ causes, keeperStopped }) => [
  ...causes.flatMap((cause) => (cause.startsWith('failed: ') ? ['spawn-error'] : REASONS[cause])),
  // A keeper that does not react is killed by the process that sent it a request.
  ...(keeperStopped ? ['lost'] : []),
]

/**
 * No process is left that could find the rest of this run, and the product does not promise to find
 * it.
 */
const isBeyondReach = ({ lost, traceable, registryLost, isKept }) =>
  (registryLost && isKept) ||
  (lost.includes('keeper') && lost.includes('zygote') && (!traceable || registryLost))

/**
 * How much a bot may grow. Slow growth shows only after thousands of runs: the soak loop checks
 * that.
 */
const ALLOWANCE = { fds: 0, threads: 4, zombies: 0, helpers: 0, rssKb: 65_536 }

/**
 * Longer than any request takes if all processes get SIGTERM. Shorter than the long grace period of
 * some runs.
 */
const LATE_MS = 25_000

/**
 * Far above the promise (50 ms) plus the delay of a machine with a load of 30. Below the longest
 * time for which a bot waits for a helper.
 */
const BLOCKED_MS = 3000

export const invariants = [
  {
    name: 'no survivor',
    check: ({ runs, claims, reports, final }) => [
      ...claims
        .filter(({ hasBegun, survivors, isGone }) => hasBegun && survivors === 0 && isGone === false)
        .filter(({ run }) => !isExcused(runs, run))
        .map(
          ({ who, run, reason, step }) =>
            `${who} reported at step ${step} that ${run} had ended (${reason}), but it was alive`,
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
            `the report of ${by} at step ${step} says that ${runId} is ${outcome}, but it is alive`,
        ),
      ...final.alone.map(
        ({ run, who }) => `${run} survived its bot, although it had a keeper or a zygote:\n${who}`,
      ),
      ...final.survivors
        .filter(({ run }) => !isExcused(runs, run))
        .map(({ run, who }) => `${run} survived the last reap:\n${who}`),
      ...final.processes.map((who) => `a process is left: ${who}`),
    ],
  },
  {
    name: 'no bystander is ended',
    check: ({ bystanders, runs }) => [
      ...bystanders
        .filter(({ endedAt }) => endedAt !== undefined)
        .map(({ who, pid, endedAt }) => `a bystander was ended at step ${endedAt}: ${who} (${pid})`),
      ...runs
        .filter(({ endedUnasked }) => endedUnasked)
        .map(
          ({ name, isBystander, endedAt }) =>
            `${name}, which ${isBystander ? 'was unregistered' : 'no request named'}, was ended at step ${endedAt}`,
        ),
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
      ...final.entries.map((runId) => `${runId} is in the registry after the last reap`),
      ...reports.flatMap(({ by, step, alive, decisions }) =>
        alive
          .filter((run) => !decisions.some(({ runId }) => runId === run) && !isExcused(runs, run))
          .map((run) => `the report of ${by} at step ${step} does not mention ${run}, whose bot is gone`),
      ),
      ...final.overlooked
        .filter(({ run }) => !isExcused(runs, run))
        .map(({ bot, run }) => `bot ${bot} watches for orphans and ends them, but did not end ${run}`),
      ...(final.couldNotLog ? [] : killedOf(reports))
        .filter(({ pid }) => !final.log.some((line) => line.includes(` KILLED pid=${pid} `)))
        .map(({ runId }) => `${runId} was reported as killed, but the event log has no such line`),
    ],
  },
  {
    name: 'killed once',
    check: ({ reports, kills }) => {
      const reported = killedOf(reports).map(({ by, runId }) => ({ by, run: runId }))
      // A bot reports a run that it reaps twice: as an event, and in the report.
      const others = kills.filter(({ by, run }) => !reported.some((it) => it.by === by && it.run === run))
      return [kills, [...reported, ...others]]
        .flatMap((claimed) => repeated(claimed.map(({ run }) => run)))
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
    name: 'signals and output arrive',
    check: ({ runs, undelivered }) => [
      ...undelivered,
      ...runs
        .filter(({ says, said, exits }) => said !== undefined && said !== says && exits.some(hasSaidAll))
        .map(({ name, says, said }) => `${name} wrote ${says} bytes, but the bot read ${said}`),
    ],
  },
  {
    name: 'requests are answered or refused with a code',
    check: ({ orders, bots }) => [
      ...orders
        .filter(({ outcome, isLate }) => outcome === 'unanswered' || (isLate && outcome !== 'done'))
        .filter(({ bot }) => !isExpectedToEnd(bots, bot))
        .map(({ bot, order, step }) => `${bot} did not answer ${order} of step ${step}`),
      ...orders
        .filter(({ tookMs = 0 }) => tookMs > LATE_MS)
        .map(
          ({ bot, order, step, tookMs }) =>
            `${bot} answered ${order} of step ${step} after ${Math.round(tookMs / 1000)} s: a process did not get SIGTERM`,
        ),
      ...orders
        .filter(({ outcome, code }) => outcome === 'refused' && !/^E[A-Z_]+$/.test(code ?? ''))
        .map(
          ({ bot, order, step, message }) =>
            `${bot} refused ${order} of step ${step} without a code: ${message}`,
        ),
    ],
  },
  {
    name: 'no other process blocks a bot',
    check: ({ orders }) =>
      orders
        .filter(({ blockedMs = 0 }) => blockedMs > BLOCKED_MS)
        .map(
          ({ bot, order, step, blockedMs }) =>
            `the event loop of bot ${bot} was blocked for ${Math.round(blockedMs)} ms by ${order} of step ${step}`,
        ),
  },
  {
    name: 'the sockets of a bot are its own',
    check: ({ bots }) =>
      bots.flatMap(({ name, deaf = [] }) =>
        deaf.map((socket) => `bot ${name} listens at ${socket}, but the socket does not answer`),
      ),
  },
  {
    name: 'bots leak nothing',
    check: ({ bots }) =>
      bots
        .filter(({ before, after }) => before && after)
        .flatMap(({ name, before, after, ...bot }) =>
          Object.keys(ALLOWANCE)
            .filter((it) => after[it] > before[it] + ALLOWANCE[it] + leftByOthers(it, bot))
            .map((it) => `bot ${name} had ${before[it]} ${it}, but has ${after[it]} after its last run`),
        ),
  },
  {
    name: 'no bot crashes',
    check: ({ bots }) =>
      bots
        .filter(({ expected, how }) => expected === undefined && how !== undefined)
        .map(({ name, how, complaint }) => `bot ${name} ended unexpectedly (${how}):\n${complaint}`),
  },
]

/**
 * Resources that the product does not leak itself. A bot reaps a killed zygote when it needs the
 * next one. libuv keeps the file descriptor with which it watches files. Node keeps one end of each
 * IPC channel whose process it could not start for lack of file descriptors.
 */
export function leftByOthers(what, { hasLostZygote, hasWatched, channelsLost = 0, childrenStarted = 0 }) {
  if (what === 'helpers') return childrenStarted
  if (what === 'zombies') return hasLostZygote ? 1 : 0
  return what === 'fds' ? channelsLost + (hasWatched ? 1 : 0) : 0
}

const killedOf = (reports) =>
  reports.flatMap(({ by, decisions }) =>
    decisions.filter(({ outcome }) => outcome === 'ended').map((decision) => ({ by, ...decision })),
  )

const repeated = (list) => [...new Set(list.filter((it, index) => list.indexOf(it) !== index))]

/** The command exits with 0 only if it could write all of its output. */
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
  if (allowed.length === 0) wrong.push(`it ended as ${reason}, but nothing had been done to it`)
  else if (!allowed.includes(reason))
    wrong.push(`it ended as ${reason}, but only ${allowed.join(' or ')} can be true`)
  if (reason === 'ownership-escape' && !run.hasEscapees)
    wrong.push('the reason is an escape, but no process of this command can escape')
  if (reason === 'exit' && exitCode === null) wrong.push('it exited, but has no exit code')
  if (reason === 'signal' && signal === null) wrong.push('a signal ended it, but the signal is not reported')
  if (timedOut !== reason.endsWith('-timeout'))
    wrong.push(`timedOut is ${timedOut}, but the reason is ${reason}`)
  if (noOutputTimedOut !== (reason === 'no-output-timeout'))
    wrong.push(`noOutputTimedOut is ${noOutputTimedOut}, but the reason is ${reason}`)
  const { timeoutMs, noOutputTimeoutMs } = run.options
  // A keeper that was stopped may get the extension too late.
  const deadline = timeoutMs + (run.keeperStopped ? 0 : (run.extendedMs ?? 0))
  if (reason === 'overall-timeout' && durationMs < deadline)
    wrong.push(`a timeout of ${deadline} ms elapsed after ${durationMs} ms`)
  if (reason === 'no-output-timeout' && durationMs < noOutputTimeoutMs)
    wrong.push(`an idle timeout of ${noOutputTimeoutMs} ms elapsed after ${durationMs} ms`)
  return wrong
}

/** One `{ invariant, what }` for each violation. */
export const violationsOf = (facts) =>
  invariants.flatMap(({ name, check }) => check(facts).map((what) => ({ invariant: name, what })))
