/** PID reuse: a bystander gets the PID of a root, a keeper or a bot that has exited. */

import { isFree, takeNext } from '../next-pid.mjs'

const WHOSE = {
  root: { of: (_, run) => run.root, words: (run) => `the root of ${run}` },
  keeper: { of: (_, run) => run.keeper, words: (run) => `the keeper of ${run}` },
  bot: { of: (stage, run) => stage.bots.get(run.bot)?.process, words: (run) => `the bot of ${run}` },
}

/**
 * Kills the root of a run that has lost both bot and keeper. Only then can another process get its
 * PID: otherwise the root stays a zombie, which keeps the PID.
 */
function endRoot(stage, run) {
  if (stage.bot(run.bot) || run.keeper?.isAlive() || !run.root?.isAlive()) return
  run.mayEnd('root killed')
  run.root.signal('SIGKILL')
}

/** A run whose PIDs can become free, and that does not end by itself. */
function orphanOf(draft) {
  const owner = (run) => draft.bots.find(({ name }) => name === run.bot)
  const isUnattended = (run) => (run.isRegistered ? !owner(run).isUp : owner(run).isUtterlyGone)
  return draft.run((run) => isUnattended(run) && !run.isBrief)
}

export const pidReuseMoves = [
  {
    name: 'reuse-pid',
    // The situation is rare, but it is what process identities exist for.
    weight: (draft) => (orphanOf(draft) ? 12 : 1),
    draw(draft) {
      const run = orphanOf(draft) ?? draft.run()
      if (!run) return undefined
      const whose = draft.dice.weighted([
        [3, 'root'],
        [1, 'keeper'],
        [1, 'bot'],
      ])
      return { run: run.name, whose, bystander: draft.newBystander(), leads: draft.dice.chance(0.6) }
    },
    describe: ({ run, whose, leads }) =>
      `${whose === 'root' ? `the root of ${run} is killed, if it has neither bot nor keeper; ` : ''}a bystander gets the PID of ${WHOSE[whose].words(run)}, if that is free${leads ? ', and leads a process group with that id' : ''}`,
    async play(stage, { run: runId, whose, bystander, leads }) {
      const run = stage.run(runId)
      const pid = run && WHOSE[whose].of(stage, run)?.pid
      if (pid === undefined) return false
      if (whose === 'root') endRoot(stage, run)
      if (!(await isFree(pid))) return false
      const who = `a process with the PID of ${WHOSE[whose].words(runId)}`
      return await stage.bystanders.add(bystander, { who, pid, before: () => takeNext(pid), detached: leads })
    },
  },
]
