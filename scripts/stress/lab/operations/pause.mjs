/** A bot pauses its run, with SIGSTOP or by not reading its output, and resumes it. */

import { setTimeout as delay } from 'node:timers/promises'

/** The keeper delivers the signal, and may be slow. */
const ARRIVES_MS = 10_000

/**
 * A process that ends the run may also have continued it, or the keeper was stopped and got no
 * request.
 */
const isExcused = (run) => run.hasCause || run.keeperStopped || !run.root?.isAlive()

async function mustStop(stage, run) {
  const giveUpAt = performance.now() + ARRIVES_MS
  while (!isExcused(run) && !run.root.isStopped()) {
    if (performance.now() > giveUpAt) {
      stage.undelivered.push(`kill() sent SIGSTOP to ${run.name} and returned true, but it still runs`)
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
    describe: ({ run }) => `the bot of ${run} sends it SIGSTOP with kill()`,
    async play(stage, { run: runId }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      if (!bot) return false
      let isSent = false
      run.mayBeSilent()
      await stage.order(bot, 'signal', [runId, 'SIGSTOP'], { awaited: true, onResult: (it) => (isSent = it) })
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
    describe: ({ run }) => `the bot of ${run} sends it SIGCONT with kill()`,
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
    describe: ({ run, isOn }) =>
      `the bot of ${run} ${isOn ? 'reads' : 'does not read'} its output from now on`,
    play(stage, { run: runId, isOn }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      return bot ? stage.order(bot, isOn ? 'read' : 'stopReading', [runId]) : false
    },
  },
]
