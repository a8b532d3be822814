/** SIGKILL to a bot, a keeper, a zygote, or all of them together. */

import { helpersOf, runsKeptBy, runsWatchedBy } from '../helpers.mjs'

export const killMoves = [
  {
    name: 'kill-bot',
    weight: 2.5,
    draw(draft) {
      const bot = draft.bot({ evenStopped: true })
      if (!bot) return undefined
      bot.isUp = false
      return { bot: bot.name }
    },
    describe: ({ bot }) => `SIGKILL to bot ${bot}`,
    play(stage, { bot: name }) {
      const bot = stage.bot(name)
      if (!bot) return false
      stage.expectEnd(bot, 'kill')
      return bot.process.signal('SIGKILL')
    },
  },
  {
    name: 'kill-all',
    weight: 2,
    draw(draft) {
      const bot = draft.bot({ evenStopped: true })
      if (!bot) return undefined
      Object.assign(bot, { isUp: false, isUtterlyGone: true })
      return { bot: bot.name, stopFirst: draft.dice.chance(0.7) }
    },
    describe: ({ bot, stopFirst }) =>
      `SIGKILL to bot ${bot}, its zygote and its keepers${stopFirst ? ', all of them stopped first' : ', one after the other'}`,
    async play(stage, { bot: name, stopFirst }) {
      const bot = stage.bot(name)
      if (!bot) return false
      const helpers = () => helpersOf(stage, bot)
      // Stopped, so that none reacts to the death of another.
      if (stopFirst) bot.wasStopped = true
      if (stopFirst) for (const one of [bot.process, ...helpers()]) await one.stop()
      stage.expectEnd(bot, 'kill')
      const victims = [bot.process, ...helpers()]
      // Also runs that the bot has not reported yet, and runs whose root had exited before the lab
      // could read its parent.
      const isUnreported = ({ bot, keeper, isRegistered }) => bot === name && !keeper && !isRegistered
      const unreported = [...stage.runs.values()].filter(isUnreported)
      for (const run of [...unreported, ...runsKeptBy(stage, victims)]) run.loses('keeper')
      for (const run of [...unreported, ...runsWatchedBy(stage, victims)]) run.loses('zygote')
      for (const victim of victims) victim.signal('SIGKILL')
    },
  },
  {
    name: 'kill-keeper',
    weight: 1.5,
    draw(draft) {
      const run = draft.run(({ isRegistered }) => !isRegistered)
      return run && { run: run.name }
    },
    describe: ({ run }) => `SIGKILL to the keeper of ${run}`,
    play(stage, { run: runId }) {
      const run = stage.run(runId)
      if (!run?.keeper?.isAlive()) return false
      run.loses('keeper')
      return run.keeper.signal('SIGKILL')
    },
  },
  {
    name: 'kill-zygote',
    weight: 1,
    draw(draft) {
      const run = draft.run(({ isRegistered }) => !isRegistered)
      return run && { run: run.name }
    },
    describe: ({ run }) => `SIGKILL to the zygote above ${run}`,
    play(stage, { run: runId }) {
      const zygote = stage.run(runId)?.zygote
      if (!zygote?.isAlive()) return false
      for (const run of runsWatchedBy(stage, [zygote])) {
        run.loses('zygote')
        stage.bots.get(run.bot).hasLostZygote = true
      }
      return zygote.signal('SIGKILL')
    },
  },
]
