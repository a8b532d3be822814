/** SIGSTOP, as a laptop that sleeps, a debugger or a run that does not like its keeper. All go on when the curtain falls. */

const WHO = {
  bot: { of: (stage, run) => stage.bot(run.bot)?.process, words: (run) => `the bot of ${run}` },
  root: { of: (_, run) => run.root, words: (run) => `the root of ${run}` },
  keeper: { of: (_, run) => run.keeper, words: (run) => `the keeper of ${run}` },
  zygote: { of: (_, run) => run.zygote, words: (run) => `the zygote above ${run}` },
}

function drawOne(draft, weights) {
  const run = draft.run()
  return run && { run: run.name, who: draft.dice.weighted(weights) }
}

export const stopMoves = [
  {
    name: 'stop',
    weight: 2,
    draw: (draft) =>
      drawOne(draft, [
        [1, 'bot'],
        [1, 'root'],
        [2, 'keeper'],
        [1, 'zygote'],
      ]),
    tell: ({ run, who }) => `SIGSTOP to ${WHO[who].words(run)}`,
    async play(stage, { run: runId, who }) {
      const run = stage.run(runId)
      const one = run && WHO[who].of(stage, run)
      if (!one?.isAlive()) return false
      if (who === 'keeper') run.keeperStopped = true
      if (who === 'root') run.mayBeSilent()
      await one.stop()
    },
  },
  {
    name: 'continue',
    weight: 2,
    draw: (draft) => (draft.steps.some((step) => step.do === 'stop') ? {} : undefined),
    tell: () => 'SIGCONT to all that were stopped',
    play: (stage) => stage.continueAll(),
  },
]
