/** Deadlines are moved. */

/** So much of a deadline must be left for its keeper to hear in time that it is moved. */
const IN_TIME_MS = 800

const hasDeadline = (run) => run.hasDeadline

export const deadlineMoves = [
  {
    name: 'extend',
    weight: ({ runs }) => (runs.some(hasDeadline) ? 3 : 0),
    draw(draft) {
      const run = draft.run(hasDeadline)
      return run && { run: run.name, ms: draft.dice.pick([0, 100, 700]), awaited: draft.dice.chance(0.5) }
    },
    tell: ({ run, ms }) => `the bot of ${run} gives it ${ms} ms more`,
    play(stage, { run: runId, ms, awaited }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      if (!bot) return false
      return stage.order(bot, 'extend', [runId, ms], {
        awaited,
        heard({ isMoved, age }) {
          if (isMoved && run.options.timeoutMs - age > IN_TIME_MS) run.getsMore(ms)
        },
      })
    },
  },
]
