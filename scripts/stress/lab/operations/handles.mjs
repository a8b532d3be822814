/**
 * Handles that a caller keeps: the ChildProcess of a process that the bot started with
 * child_process, registered or not. When the caller cancels or unregisters with the handle, the
 * process may have exited and another process may have its PID.
 */

import { program } from '../../../../__test__/support/fixtures.mjs'
import { isFree, takeNext } from '../next-pid.mjs'

const MOST_RUNS = 12

/** A run with a handle. Its process may have exited. */
const handleOf = (draft) => draft.run(({ hasHandle }) => hasHandle)

function drawByHandle(draft) {
  const run = handleOf(draft)
  return run && { run: run.name, awaited: draft.dice.chance(0.7) }
}

/** A handle whose process has exited, or was never registered, refers to nothing. */
const isMeant = (run) => run.root?.isAlive() && !run.isBystander

export const handleMoves = [
  {
    name: 'start-child',
    weight: 1.5,
    draw(draft) {
      const bot = draft.bot()
      if (!bot || draft.runs.length >= MOST_RUNS) return undefined
      const run = draft.addRun({ bot: bot.name, isRegistered: true, isKept: true, hasHandle: true })
      const { dice } = draft
      return { bot: bot.name, run: run.name, leads: dice.chance(0.6), isRegistered: dice.chance(0.7) }
    },
    describe: ({ bot, run, isRegistered }) =>
      `bot ${bot} starts ${run} with child_process, and ${isRegistered ? 'registers it' : 'does not register it'}`,
    async play(stage, { bot: name, run: runId, leads, isRegistered }) {
      const bot = stage.bot(name)
      if (!bot) return false
      const run = stage.addRun(runId, { bot: name, what: 'stays', isKept: true, isRegistered: true })
      const task = { runId, file: program('stays'), args: [run.witness.path], leads, isRegistered }
      await stage.order(bot, 'startChild', [task], {
        awaited: true,
        onResult({ pid, isRecorded }) {
          bot.childrenStarted++
          run.hasBegun(pid)
          if (isRecorded) run.isRecorded()
          else run.becomesBystander()
        },
        // A bot that has died may have started and registered the process before.
        refused: () => run.mayBeLost(),
      })
      if (run.root) await stage.stands(run, 1)
      else run.mayEnd('no forks')
    },
  },
  {
    name: 'register-at',
    // A handle must never refer to another process of the registry that has its PID now.
    weight: (draft) => (handleOf(draft) ? 4 : 0),
    draw(draft) {
      const [bot, handle] = [draft.bot(), handleOf(draft)]
      if (!bot || !handle || draft.runs.length >= MOST_RUNS) return undefined
      const run = draft.addRun({ bot: bot.name, isRegistered: true, isKept: true })
      return { bot: bot.name, run: run.name, handle: handle.name }
    },
    describe: ({ bot, run, handle }) =>
      `${handle} is killed; another process gets its PID, if that is free; bot ${bot} registers that as ${run}`,
    async play(stage, { bot: name, run: runId, handle }) {
      const [bot, former] = [stage.bot(name), stage.run(handle)]
      if (!bot || !former?.root || former.isPidTaken) return false
      former.mayEnd('root killed')
      former.root.signal('SIGKILL')
      const { pid } = former.root
      if (!(await isFree(pid))) return false
      const run = await stage.addRegistered(runId, {
        bot: name,
        leads: true,
        pid,
        before: () => takeNext(pid),
      })
      if (!run) return false
      former.isPidTaken = true
      await stage.order(bot, 'register', [{ runId, pid, graceMs: 100 }], {
        awaited: true,
        onResult: () => run.isRecorded(),
        refused: (isGone) => (isGone ? run.mayBeLost() : run.becomesBystander()),
      })
    },
  },
  {
    name: 'cancel-child',
    weight: (draft) => (handleOf(draft) ? 3 : 0),
    draw: drawByHandle,
    describe: ({ run }) => `the bot of ${run} cancels it with its ChildProcess`,
    play(stage, { run: runId, awaited }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      if (!bot) return false
      const over = isMeant(run) ? stage.during((it) => it === run, 'cancel') : () => {}
      return stage.order(bot, 'cancelChild', [runId], {
        awaited,
        over,
        onResult: ({ exits }) => stage.claimAll(`cancel() of ${bot.name}`, exits),
      })
    },
  },
  {
    name: 'unregister-child',
    weight: (draft) => (handleOf(draft) ? 1 : 0),
    draw: drawByHandle,
    describe: ({ run }) => `the bot of ${run} unregisters it with its ChildProcess`,
    play(stage, { run: runId, awaited }) {
      const run = stage.run(runId)
      const bot = run && stage.bot(run.bot)
      if (!bot) return false
      if (isMeant(run)) run.isNotRecorded()
      return stage.order(bot, 'unregisterChild', [runId], {
        awaited,
        onResult: (done) => done && isMeant(run) && run.becomesBystander(),
        refused: (isGone) => isGone && run.mayBeLost(),
      })
    },
  },
]
