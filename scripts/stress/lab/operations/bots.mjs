/** Bots start and end. */

import { setTimeout as delay } from 'node:timers/promises'

const MOST_BOTS = 6

export const botMoves = [
  {
    name: 'start',
    weight: 2,
    draw: (draft) =>
      draft.bots.length < MOST_BOTS
        ? { bot: draft.addBot().name, isWarm: draft.dice.chance(0.7) }
        : undefined,
    describe: ({ bot, isWarm }) => `bot ${bot} starts${isWarm ? ', and has one run' : ''}`,
    play: async (stage, { bot, isWarm }) => (await stage.startBot(bot, { isWarm })) !== undefined,
  },
  {
    name: 'leave',
    weight: 0.7,
    draw(draft) {
      const bot = draft.bot()
      if (!bot) return undefined
      bot.isUp = false
      return { bot: bot.name }
    },
    describe: ({ bot }) => `bot ${bot} ends by process.exit()`,
    play(stage, { bot: name }) {
      const bot = stage.bot(name)
      if (!bot) return false
      stage.expectEnd(bot, 'leave')
      return stage.order(bot, 'leave', [])
    },
  },
  {
    name: 'shutdown',
    weight: 0.7,
    draw(draft) {
      const bot = draft.bot()
      return (
        bot && { bot: bot.name, graceMs: draft.dice.pick([0, 100, 500]), awaited: draft.dice.chance(0.5) }
      )
    },
    describe: ({ bot, graceMs }) => `bot ${bot} shuts down, with ${graceMs} ms of grace`,
    play(stage, { bot: name, graceMs, awaited }) {
      const bot = stage.bot(name)
      if (!bot) return false
      const ended = stage.during((run) => run.bot === name, 'shutdown')
      return stage.order(bot, 'shutdown', [{ graceMs }], {
        awaited,
        onResult: ({ exits }) => stage.claimAll(`shutdown() of ${name}`, exits),
        over: ended,
      })
    },
  },
  {
    name: 'pass',
    weight: 1,
    draw: ({ dice }) => ({ ms: dice.pick([20, 100, 400]) }),
    describe: ({ ms }) => `${ms} ms pass`,
    play: (_stage, { ms }) => delay(ms),
  },
]
