/**
 * A bot writes to its environment while native threads run. A native read of the environment at
 * that moment may crash the bot.
 */

export const environmentMoves = [
  {
    name: 'write-environment',
    weight: 1.5,
    draw(draft) {
      const bot = draft.bot()
      return bot && { bot: bot.name, ms: draft.dice.pick([20, 200]) }
    },
    describe: ({ bot, ms }) => `bot ${bot} writes to process.env for ${ms} ms`,
    play(stage, { bot: name, ms }) {
      const bot = stage.bot(name)
      return bot ? stage.order(bot, 'writeEnvironment', [ms]) : false
    },
  },
]
