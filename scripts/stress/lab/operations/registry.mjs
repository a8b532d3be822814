/** Processes are registered; runs without a bot are reaped and adopted. */

const POLICIES = [
  [5, 'terminate'],
  [1, 'adopt'],
  [1, 'leave'],
]

export const registryMoves = [
  {
    name: 'register',
    weight: 1.5,
    draw(draft) {
      const bot = draft.bot()
      if (!bot || draft.runs.length >= 12) return undefined
      const run = draft.addRun({ bot: bot.name, isRegistered: true, isKept: true })
      return { bot: bot.name, run: run.name, leads: draft.dice.chance(0.6) }
    },
    describe: ({ bot, run, leads }) =>
      `a process is started ${leads ? 'as the leader of its group' : "in the lab's own group"}; bot ${bot} registers it as ${run}`,
    async play(stage, { bot: name, run: runId, leads }) {
      const bot = stage.bot(name)
      if (!bot) return false
      const run = await stage.addRegistered(runId, { bot: name, leads })
      if (!run) return false
      await stage.order(bot, 'register', [{ runId, pid: run.root.pid, graceMs: 100 }], {
        awaited: true,
        onResult: () => run.isRecorded(),
        // A bot that has died may have recorded it before.
        refused: (isGone) => (isGone ? run.mayBeLost() : run.becomesBystander()),
      })
    },
  },
  {
    name: 'unregister',
    weight: 0.7,
    draw(draft) {
      const run = draft.run(({ isRegistered }) => isRegistered)
      return run && { run: run.name }
    },
    describe: ({ run }) => `the bot of ${run} unregisters it; from then on it is a bystander`,
    play(stage, { run: runId }) {
      const run = stage.run(runId)
      const bot = run?.isRegistered && stage.bot(run.bot)
      if (!bot) return false
      run.isNotRecorded()
      return stage.order(bot, 'unregister', [runId], {
        awaited: true,
        onResult: (done) => done && run.becomesBystander(),
        // A bot that has died may have unregistered it before.
        refused: (isGone) => isGone && run.mayBeLost(),
      })
    },
  },
  {
    name: 'reap',
    weight: 3,
    draw(draft) {
      const bot = draft.bot()
      const policy = draft.dice.weighted(POLICIES)
      const dryRun = draft.dice.chance(0.15)
      return bot && { by: bot.name, policy, dryRun, awaited: draft.dice.chance(0.5) }
    },
    describe: ({ by, policy, dryRun }) =>
      `bot ${by} reaps${dryRun ? ', as a dry run' : ''}${policy === 'terminate' ? '' : `, with the policy '${policy}'`}`,
    play(stage, { by, policy, dryRun, awaited }) {
      const bot = stage.bot(by)
      if (!bot) return false
      return stage.reap(bot, { policy, dryRun }, awaited)
    },
  },
  {
    name: 'adopt',
    weight: 1.5,
    draw(draft) {
      const run = draft.run(({ isKept }) => isKept)
      const bot = draft.bot()
      return run && bot && { by: bot.name, run: run.name, awaited: draft.dice.chance(0.7) }
    },
    describe: ({ by, run }) => `bot ${by} adopts ${run}`,
    play(stage, { by, run: runId, awaited }) {
      const [bot, run] = [stage.bot(by), stage.run(runId)]
      if (!bot || !run) return false
      return stage.order(bot, 'adopt', [runId], { awaited, onResult: () => run.belongsTo(by) })
    },
  },
]
