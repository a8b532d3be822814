/** Bots watch for orphans, and end them or only report them. */

import { mayReap } from '../reaping.mjs'

export const watchMoves = [
  {
    name: 'watch',
    weight: 1.5,
    draw(draft) {
      const bot = draft.bot()
      return (
        bot && {
          bot: bot.name,
          autoKill: draft.dice.chance(0.7),
          intervalMs: draft.dice.pick([100, 500, 60_000]),
        }
      )
    },
    describe: ({ bot, autoKill, intervalMs }) =>
      `bot ${bot} watches for orphans every ${intervalMs} ms${autoKill ? ', and ends them' : ''}`,
    play(stage, { bot: name, autoKill, intervalMs }) {
      const bot = stage.bot(name)
      if (!bot) return false
      if (autoKill) mayReap(stage, () => stage.bot(name) !== undefined)
      return stage.order(bot, 'watch', [{ autoKill, intervalMs }], {
        onResult: () => Object.assign(bot, { hasWatched: true, endsOrphans: autoKill }),
      })
    },
  },
  {
    name: 'unwatch',
    weight: 0.5,
    draw(draft) {
      const watch = draft.dice.pick(draft.steps.filter((step) => step.do === 'watch'))
      return watch && { bot: watch.bot }
    },
    describe: ({ bot }) => `bot ${bot} stops watching for orphans`,
    play(stage, { bot: name }) {
      const bot = stage.bot(name)
      if (!bot?.hasWatched) return false
      return stage.order(bot, 'unwatch', [], { awaited: true, onResult: () => (bot.endsOrphans = false) })
    },
  },
]
