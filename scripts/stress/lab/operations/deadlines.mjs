/** Timeouts are extended. */

/** This much time must be left for the extension to reach the keeper before the timeout. */
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
    describe: ({ run, ms }) => `the bot of ${run} extends its timeout by ${ms} ms`,
    play(stage, { run: runId, ms, awaited }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      if (!bot) return false
      return stage.order(bot, 'extend', [runId, ms], {
        awaited,
        onResult({ isMoved, age }) {
          if (isMoved && run.options.timeoutMs - age > IN_TIME_MS) run.getsMore(ms)
        },
      })
    },
  },
]
