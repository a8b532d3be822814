/**
 * SIGSTOP, as from a laptop that sleeps, a debugger, or a run that attacks its keeper. At the end
 * of the round every process gets SIGCONT.
 */

import { sparesOf } from '../helpers.mjs'

const WHO = {
  bot: { of: (stage, run) => stage.bot(run.bot)?.process, words: (run) => `the bot of ${run}` },
  root: { of: (_, run) => run.root, words: (run) => `the root of ${run}` },
  keeper: { of: (_, run) => run.keeper, words: (run) => `the keeper of ${run}` },
  zygote: { of: (_, run) => run.zygote, words: (run) => `the zygote above ${run}` },
  spare: {
    of: (stage, run) => stage.bot(run.bot) && sparesOf(stage, stage.bot(run.bot))[0],
    words: (run) => `a spare keeper of the bot of ${run}`,
  },
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
        [2, 'zygote'],
        [1, 'spare'],
      ]),
    describe: ({ run, who }) => `SIGSTOP to ${WHO[who].words(run)}`,
    async play(stage, { run: runId, who }) {
      const run = stage.run(runId)
      const one = run && WHO[who].of(stage, run)
      if (!one?.isAlive()) return false
      if (who === 'keeper') run.keeperStopped = true
      if (who === 'root') run.mayBeSilent()
      if (who === 'bot') stage.bot(run.bot).wasStopped = true
      if (who === 'spare') stage.bot(run.bot).spareStopped = true
      await one.stop()
    },
  },
  {
    name: 'continue',
    weight: 2,
    draw: (draft) => (draft.steps.some((step) => step.do === 'stop') ? {} : undefined),
    describe: () => 'SIGCONT to all processes',
    play: (stage) => stage.continueAll(),
  },
]
