/** Runs are started, leave, and are cancelled. */

import { commandNamed, commands } from '../commands.mjs'

const SESSIONS = ['chat-1', 'chat-2']
const SCOPES = ['turn-1', 'turn-2']
const AGENTS = ['claude', 'codex']
const MOST_RUNS = 12

/** Ended now and then without being asked, so a plan is not all cancels. */
function deadlines(dice, { says }) {
  // It has to be loaded before it can say anything; on a busy machine that takes its time.
  const silence = says ? 1000 : 50
  return dice.weighted([
    [6, {}],
    [1, { timeoutMs: dice.between(20, 400) }],
    [1, { timeoutMs: dice.between(1200, 2000) }],
    [1, { noOutputTimeoutMs: silence + dice.below(350) }],
  ])
}

/** What the command is connected to its bot by. A run that is to be kept would leave with the pipe of its bot, or with its terminal. */
function streamsFor(dice, { isKept, needsInput, says, isListenedTo }) {
  if (!isKept && dice.chance(0.15)) return { pty: true }
  const output = says || isListenedTo ? 'pipe' : 'ignore'
  const streams = [isKept && !needsInput ? 'ignore' : 'pipe', output, 'ignore', 'witness']
  return { streams: !isKept && dice.chance(0.1) ? [...streams, 'ipc'] : streams }
}

function drawSpawn(draft) {
  const bot = draft.bot({ evenStopped: true })
  if (!bot || draft.runs.length >= MOST_RUNS) return undefined
  const { dice } = draft
  const isKept = dice.chance(0.25)
  const command = dice.pick(commands.filter(({ needsInput }) => !(isKept && needsInput)))
  const what = command.name
  const limits = deadlines(dice, command)
  const { pty, streams } = streamsFor(dice, {
    ...command,
    isKept,
    isListenedTo: limits.noOutputTimeoutMs > 0,
  })
  const options = {
    graceMs: dice.pick([0, 50, 300]),
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
  })
  const isRead = command.says !== undefined && dice.chance(0.5)
  // Whether the next step comes when the tree stands, or as soon as the bot was told to.
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

function tellSpawn({ bot, run, what, options, streams, isRead }) {
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
    isRead && 'read',
    `grace ${graceMs} ms`,
    timeoutMs && `deadline ${timeoutMs} ms`,
    noOutputTimeoutMs && `silent for ${noOutputTimeoutMs} ms at most`,
    onOwnerExit && 'kept when its bot goes',
    onLeaderExit && 'kept when its root goes',
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
  // What waits to be read is no silence, unless nobody has ever asked for it.
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
    heard: ({ pid }) => run.hasBegun(pid),
    refused() {
      run.witness.release()
      // Node keeps one end of a channel whose process it could not start.
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
  { name: 'spawn', weight: 17, draw: drawSpawn, tell: tellSpawn, play: playSpawn },
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
    tell: ({ by, target, options }) =>
      `bot ${by} cancels ${targetInWords(target)}${options.signal ? ` with ${options.signal}` : ''}`,
    play(stage, { by, target, options, awaited }) {
      const bot = stage.bot(by)
      if (!bot) return false
      const over = stage.during((run) => matches(target, run), 'cancel')
      return stage.order(bot, 'cancel', [target, options], {
        awaited,
        over,
        heard: ({ exits }) => stage.claimAll(`cancel() of ${by}`, exits),
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
    tell: ({ run }) => `the stdin of ${run} ends`,
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
    tell: ({ run }) => `somebody sends SIGKILL to the root of ${run}`,
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
    tell: ({ run, ms }) => `nothing until ${run} is over, or ${ms} ms`,
    play: (stage, { run: runId, ms }) => stage.run(runId)?.isOver(ms) ?? false,
  },
]
