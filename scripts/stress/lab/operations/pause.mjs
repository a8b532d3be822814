/** Runs are paused by their bot, with SIGSTOP or by not being read, and go on. */

import { setTimeout as delay } from 'node:timers/promises'

/** A signal goes by the keeper, which has its own pace. */
const ARRIVES_MS = 10_000

/** Anybody may have continued it who ends it, or could not be told to stop it. */
const isExcused = (run) => run.hasCause || run.keeperStopped || !run.root?.isAlive()

async function mustStop(stage, run) {
  const giveUpAt = performance.now() + ARRIVES_MS
  while (!isExcused(run) && !run.root.isStopped()) {
    if (performance.now() > giveUpAt) {
      stage.undelivered.push(`${run.name} was sent SIGSTOP by kill(), which said true, and it goes on`)
      return
    }
    await delay(2)
  }
}

const ownOf = (draft, fits = () => true) =>
  draft.run(({ isRegistered, ...run }) => !isRegistered && fits(run))

export const pauseMoves = [
  {
    name: 'pause',
    weight: 1.5,
    draw(draft) {
      const run = ownOf(draft)
      return run && { run: run.name }
    },
    tell: ({ run }) => `the bot of ${run} sends it SIGSTOP by kill()`,
    async play(stage, { run: runId }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      if (!bot) return false
      let isSent = false
      run.mayBeSilent()
      await stage.order(bot, 'signal', [runId, 'SIGSTOP'], { awaited: true, heard: (it) => (isSent = it) })
      if (isSent) await mustStop(stage, run)
    },
  },
  {
    name: 'resume',
    weight: ({ steps }) => (steps.some((step) => step.do === 'pause') ? 2 : 0),
    draw(draft) {
      const pause = draft.dice.pick(draft.steps.filter((step) => step.do === 'pause'))
      return pause && { run: pause.run }
    },
    tell: ({ run }) => `the bot of ${run} sends it SIGCONT by kill()`,
    play(stage, { run: runId }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      return bot ? stage.order(bot, 'signal', [runId, 'SIGCONT']) : false
    },
  },
  {
    name: 'read',
    weight: ({ runs }) => (runs.some(({ says }) => says) ? 3 : 0),
    draw(draft) {
      const run = ownOf(draft, ({ says }) => says)
      return run && { run: run.name, isOn: draft.dice.chance(0.6) }
    },
    tell: ({ run, isOn }) =>
      `the bot of ${run} ${isOn ? 'reads' : 'does not read'} what it says from here on`,
    play(stage, { run: runId, isOn }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      return bot ? stage.order(bot, isOn ? 'read' : 'stopReading', [runId]) : false
    },
  },
]
