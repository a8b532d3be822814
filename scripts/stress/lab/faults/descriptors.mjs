/** A bot runs out of file descriptors: it opens all but a few. */

export const descriptorMoves = [
  {
    name: 'hoard',
    weight: 0.7,
    draw(draft) {
      const bot = draft.bot()
      return bot && { bot: bot.name, free: draft.dice.pick([0, 1, 2, 3, 5, 8, 12]) }
    },
    describe: ({ bot, free }) => `bot ${bot} has only ${free} free file descriptors`,
    play(stage, { bot: name, free }) {
      const bot = stage.bot(name)
      if (!bot) return false
      stage.couldNotLog = true
      stage.remedies.set(
        `descriptors of ${name}`,
        () => stage.bot(name) && stage.order(bot, 'relent', [], { awaited: true }),
      )
      return stage.order(bot, 'hoard', [free], { awaited: true })
    },
  },
  {
    name: 'relent',
    weight: 1.5,
    draw(draft) {
      const hoarder = draft.dice.pick(draft.steps.filter((step) => step.do === 'hoard'))
      return hoarder && { bot: hoarder.bot }
    },
    describe: ({ bot }) => `bot ${bot} has all its file descriptors again`,
    play: (stage, { bot }) => stage.remedy(`descriptors of ${bot}`),
  },
]
