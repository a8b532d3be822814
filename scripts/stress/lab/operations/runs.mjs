/** Runs start, end and are cancelled. */

import { commandNamed, commands } from '../commands.mjs'

const SESSIONS = ['chat-1', 'chat-2']
const SCOPES = ['turn-1', 'turn-2']
const AGENTS = ['claude', 'codex']
const MOST_RUNS = 12
const GRACES = [0, 50, 300]
/**
 * Longer than every time limit. A process that gets no SIGTERM shows as a request without an
 * answer, or as a survivor.
 */
const LONG_GRACE = 60_000
/** PIDs that a vast tree needs. */
const VAST_PIDS = 10_000

const isPossible = (draft, isKept, { needsInput, isVast }) =>
  !(isKept && needsInput) &&
  !(isVast && (draft.setting.pids.last < VAST_PIDS || draft.runs.some((run) => run.isVast)))

/** Some runs end by a timeout, so that a plan does not consist only of cancels. */
function deadlines(dice, { says }) {
  // The command must be loaded before it can write. On a busy machine that takes longer.
  const silence = says ? 1000 : 50
  return dice.weighted([
    [6, {}],
    [1, { timeoutMs: dice.between(20, 400) }],
    [1, { timeoutMs: dice.between(1200, 2000) }],
    [1, { noOutputTimeoutMs: silence + dice.below(350) }],
  ])
}

/**
 * How the command is connected to its bot. A kept run gets no stdin pipe and no terminal: it would
 * end with them.
 */
function streamsFor(dice, { isKept, needsInput, says, isListenedTo }) {
  if (!isKept && dice.chance(0.15)) return { pty: true }
  const output = says || isListenedTo || dice.chance(0.3) ? 'pipe' : 'ignore'
  const streams = [isKept && !needsInput ? 'ignore' : 'pipe', output, 'ignore', 'witness']
  return { streams: !isKept && dice.chance(0.1) ? [...streams, 'ipc'] : streams }
}

function drawSpawn(draft) {
  const bot = draft.bot({ evenStopped: true })
  if (!bot || draft.runs.length >= MOST_RUNS) return undefined
  const { dice } = draft
  const isKept = dice.chance(0.25)
  const command = dice.weighted(
    commands.filter((it) => isPossible(draft, isKept, it)).map((it) => [it.isVast ? 0.3 : 1, it]),
  )
  const what = command.name
  const limits = deadlines(dice, command)
  const { pty, streams } = streamsFor(dice, {
    ...command,
    isKept,
    isListenedTo: limits.noOutputTimeoutMs > 0,
  })
  const options = {
    graceMs: dice.pick(command.diesOfSigterm ? [...GRACES, LONG_GRACE] : GRACES),
    ...limits,
    ...(pty ? { pty } : {}),
    ...(isKept ? { onOwnerExit: 'keep' } : {}),
    ...(dice.chance(0.15) ? { onLeaderExit: 'keep' } : {}),
    ...(dice.chance(0.4) ? { sessionId: dice.pick(SESSIONS) } : {}),
    ...(dice.chance(0.3) ? { labels: { agent: dice.pick(AGENTS) } } : {}),
    ...(dice.chance(0.3) ? { scopeKey: dice.pick(SCOPES), replaceExistingScope: dice.chance(0.7) } : {}),
  }
  const run = draft.addRun({
    bot: bot.name,
    what,
    isKept,
    isBrief: command.ends !== undefined && !command.says,
    hasDeadline: limits.timeoutMs > 0 && command.ends === undefined,
    says: command.says !== undefined,
    isVast: command.isVast,
    hasOutput: streams?.[1] === 'pipe',
  })
  const isRead = command.says !== undefined && dice.chance(0.5)
  // `awaited`: the next step waits until the tree is ready. Otherwise it starts as soon as the bot
  // has got the request.
  return {
    bot: bot.name,
    run: run.name,
    what,
    options,
    ...(pty ? {} : { streams }),
    isRead,
    awaited: dice.chance(0.7),
  }
}

function describeSpawn({ bot, run, what, options, streams, isRead }) {
  const {
    graceMs,
    timeoutMs,
    noOutputTimeoutMs,
    onOwnerExit,
    onLeaderExit,
    sessionId,
    labels,
    scopeKey,
    pty,
    ...rest
  } = options
  const more = [
    pty && 'with a terminal',
    streams?.includes('ipc') && 'with an IPC channel',
    isRead && 'its output is read',
    `grace period ${graceMs} ms`,
    timeoutMs && `timeout ${timeoutMs} ms`,
    noOutputTimeoutMs && `idle timeout ${noOutputTimeoutMs} ms`,
    onOwnerExit && 'kept when its bot ends',
    onLeaderExit && 'kept when its root ends',
    sessionId && `session ${sessionId}`,
    labels && `agent ${labels.agent}`,
    scopeKey && `${rest.replaceExistingScope ? 'replaces' : 'joins'} scope ${scopeKey}`,
  ]
  return `bot ${bot} spawns ${run}: ${what} (${more.filter(Boolean).join(', ')})`
}

async function playSpawn(stage, { bot: name, run: runId, what, options, streams, isRead, awaited }) {
  const bot = stage.bot(name)
  if (!bot) return false
  const { command, ready, ends, says } = commandNamed(what)
  const run = stage.addRun(runId, { bot: name, what, options, isKept: options.onOwnerExit === 'keep' })
  if (options.timeoutMs) run.mayEnd('deadline')
  // Output that waits to be read is not idle time, unless the bot never reads.
  if (options.noOutputTimeoutMs && !(says && isRead)) run.mayEnd('silence')
  if (ends) run.mayEnd(`by itself: ${ends}`)
  if (options.replaceExistingScope) stage.replaceScope(options.scopeKey, runId)
  const [file, args] = command(run.witness.path)
  const task = {
    runId,
    file,
    args,
    options,
    witness: run.witness.path,
    streams,
    isRead,
  }
  await stage.order(bot, 'spawn', [task], {
    awaited,
    onResult: ({ pid }) => run.hasBegun(pid),
    refused() {
      run.witness.release()
      // Node keeps one end of an IPC channel whose process it could not start.
      if (streams?.includes('ipc')) bot.channelsLost++
    },
    over: () => run.holdsLate || run.witness.release(),
  })
  if (awaited && ready > 0) await stage.stands(run, ready)
}

const TARGETS = {
  run: ({ dice }, run) => ({ target: { runId: run.name }, awaited: dice.chance(0.5) }),
  session: ({ dice }) => ({ target: { sessionId: dice.pick(SESSIONS) }, awaited: dice.chance(0.5) }),
  scope: ({ dice }) => ({ target: { scopeKey: dice.pick(SCOPES) }, awaited: dice.chance(0.5) }),
  label: ({ dice }) => ({ target: { labels: { agent: dice.pick(AGENTS) } }, awaited: dice.chance(0.5) }),
}

export function matches({ runId, sessionId, scopeKey, labels }, run) {
  if (runId !== undefined) return run.name === runId
  if (sessionId !== undefined) return run.options.sessionId === sessionId
  if (scopeKey !== undefined) return run.options.scopeKey === scopeKey
  return run.options.labels?.agent === labels.agent
}

const targetInWords = (target) => {
  const [[kind, value]] = Object.entries(target)
  if (kind === 'runId') return value
  if (kind === 'labels') return `all runs of agent ${value.agent}`
  return `all runs of ${kind === 'sessionId' ? 'session' : 'scope'} ${value}`
}

export const runMoves = [
  { name: 'spawn', weight: 17, draw: drawSpawn, describe: describeSpawn, play: playSpawn },
  {
    name: 'cancel',
    weight: 5,
    draw(draft) {
      const [bot, run] = [draft.bot(), draft.run()]
      if (!bot || !run) return undefined
      const kind = draft.dice.weighted([
        [5, 'run'],
        [1, 'session'],
        [1, 'scope'],
        [1, 'label'],
      ])
      const signal = draft.dice.weighted([
        [4, {}],
        [1, { signal: 'SIGINT' }],
        [1, { signal: 'SIGKILL' }],
      ])
      return { by: bot.name, ...TARGETS[kind](draft, run), options: signal }
    },
    describe: ({ by, target, options }) =>
      `bot ${by} cancels ${targetInWords(target)}${options.signal ? ` with ${options.signal}` : ''}`,
    play(stage, { by, target, options, awaited }) {
      const bot = stage.bot(by)
      if (!bot) return false
      const over = stage.during((run) => matches(target, run), 'cancel')
      return stage.order(bot, 'cancel', [target, options], {
        awaited,
        over,
        onResult: ({ exits }) => stage.claimAll(`cancel() of ${by}`, exits),
      })
    },
  },
  {
    name: 'hang-up',
    weight: 2,
    draw(draft) {
      const run = draft.run(({ isKept, isRegistered }) => !isKept && !isRegistered)
      return run && { run: run.name }
    },
    describe: ({ run }) => `the stdin of ${run} ends`,
    play(stage, { run: runId }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      if (!bot || run.isKept) return false
      run.mayEnd('root left')
      return stage.order(bot, 'hangUp', [runId])
    },
  },
  {
    name: 'kill-root',
    weight: 1.5,
    draw(draft) {
      const run = draft.run()
      return run && { run: run.name }
    },
    describe: ({ run }) => `SIGKILL to the root of ${run}`,
    play(stage, { run: runId }) {
      const run = stage.run(runId)
      if (!run?.root) return false
      run.mayEnd('root killed')
      return run.root.signal('SIGKILL')
    },
  },
  {
    name: 'wait',
    weight: 1.5,
    draw(draft) {
      const run = draft.run()
      return run && { run: run.name, ms: 2000 }
    },
    describe: ({ run, ms }) => `wait until ${run} has ended, or ${ms} ms`,
    play: (stage, { run: runId, ms }) => stage.run(runId)?.isOver(ms) ?? false,
  },
]
