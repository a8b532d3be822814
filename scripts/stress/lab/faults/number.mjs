/** PID reuse: a stranger gets the number of a root, a keeper or a bot that is gone. */

import { existsSync, writeFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { quietly } from '../witness.mjs'

const FREE_MS = 500

const WHOSE = {
  root: { of: (_, run) => run.root, words: (run) => `the root of ${run}` },
  keeper: { of: (_, run) => run.keeper, words: (run) => `the keeper of ${run}` },
  bot: { of: (stage, run) => stage.bots.get(run.bot)?.process, words: (run) => `the bot of ${run}` },
}

/** Returns when nobody has it: a zombie still does. */
async function isFree(pid) {
  const giveUpAt = performance.now() + FREE_MS
  while (existsSync(`/proc/${pid}`) && performance.now() < giveUpAt) await delay(1)
  return !existsSync(`/proc/${pid}`)
}

/** Only a run that has lost both bot and keeper has a root whose number anybody could get: else a zombie keeps it. */
function endRoot(stage, run) {
  if (stage.bot(run.bot) || run.keeper?.isAlive() || !run.root?.isAlive()) return
  run.mayEnd('root killed')
  run.root.signal('SIGKILL')
}

/** Of those whose number can be had, one that is not over by itself. */
function orphanOf(draft) {
  const owner = (run) => draft.bots.find(({ name }) => name === run.bot)
  const hasNobody = (run) => (run.isRegistered ? !owner(run).isUp : owner(run).isUtterlyGone)
  return draft.run((run) => hasNobody(run) && !run.isBrief)
}

export const numberMoves = [
  {
    name: 'take-number',
    // Rare as it is, it is what identities are for.
    weight: (draft) => (orphanOf(draft) ? 12 : 1),
    draw(draft) {
      const run = orphanOf(draft) ?? draft.run()
      if (!run) return undefined
      const whose = draft.dice.weighted([
        [3, 'root'],
        [1, 'keeper'],
        [1, 'bot'],
      ])
      return { run: run.name, whose, stranger: draft.newStranger(), leads: draft.dice.chance(0.6) }
    },
    tell: ({ run, whose, leads }) =>
      `${whose === 'root' ? `the root of ${run} is killed, if it has neither bot nor keeper; ` : ''}a stranger gets the number of ${WHOSE[whose].words(run)}, if that is free${leads ? ', and leads a group of that number' : ''}`,
    async play(stage, { run: runId, whose, stranger, leads }) {
      const run = stage.run(runId)
      const pid = run && WHOSE[whose].of(stage, run)?.pid
      if (pid === undefined) return false
      if (whose === 'root') endRoot(stage, run)
      if (!(await isFree(pid))) return false
      // Refused while there are no numbers to be had.
      const take = () => quietly(() => writeFileSync('/proc/sys/kernel/ns_last_pid', String(pid - 1)))
      const who = `one with the number of ${WHOSE[whose].words(runId)}`
      return await stage.addStranger(stranger, { who, pid, before: take, detached: leads })
    },
  },
]
