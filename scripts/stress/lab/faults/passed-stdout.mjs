/**
 * A bot passes the stdout of a run to a worker. From then on one of the bot's own sockets has that
 * file descriptor, see ../passed-streams.mjs.
 */

export const passedStdoutMoves = [
  {
    name: 'pass-stdout',
    weight: ({ runs }) => (runs.some(({ hasOutput, says }) => hasOutput && !says) ? 2.5 : 0),
    draw(draft) {
      const run = draft.run(({ hasOutput, says }) => hasOutput && !says)
      return run && { run: run.name }
    },
    describe: ({ run }) => `the bot of ${run} passes its stdout to a worker, and listens at a socket`,
    play(stage, { run: runId }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      if (!bot || stage.cannotFork) return false
      bot.hasPassedStdout = true
      // Node keeps one end of the IPC channel of a worker that it could not start.
      const refused = () => bot.channelsLost++
      return stage.order(bot, 'passStdout', [runId], { awaited: true, refused })
    },
  },
]
