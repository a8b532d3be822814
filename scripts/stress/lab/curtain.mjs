/**
 * The end of a round. Everything that was made difficult is made easy again; what was asked is answered; then the bots go, and what
 * they leave is to be gone without anybody's help; then a last bot reaps, and nothing of any run may be left at all.
 */

import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { leftByOthers } from './invariants.mjs'
import { describe, holdsAny, measure, processes, readRegistry, statOf, within } from './witness.mjs'

/** Keepers give 1.5 s at most, and then kill. On a machine with a load of 10 all of it takes its time. */
const ALONE_MS = 15_000
const SETTLED_MS = 15_000
const LAST = 'Z'

export async function lowerCurtain(stage) {
  await stage.relent()
  stage.continueAll()
  await stage.allAnswered()
  const overlooked = await leftByWatches(stage)
  await comeToRest(stage)
  await everybodyGoes(stage)
  const alone = await goneAlone(stage)
  const last = await stage.startBot(LAST)
  await stage.reap(last, { policy: 'terminate', dryRun: false }, true)
  const survivors = runsOf(stage).filter((run) => !run.isStranger && !run.isGone())
  const left = survivors.map((run) => ({ run: run.name, who: run.witness.holders() }))
  const entries = await entriesLeft(stage)
  stage.expectEnd(last, 'kill')
  last.process.signal('SIGKILL')
  await last.ended
  stage.final = {
    overlooked,
    alone,
    survivors: left,
    entries,
    log: logOf(stage),
    couldNotLog: stage.couldNotLog,
    processes: await processesLeft(stage, survivors),
  }
}

const runsOf = (stage) => [...stage.runs.values()]

/** Kept runs without a bot that are there after a while, though a bot looks for such and ends them. */
async function leftByWatches(stage) {
  const [watcher] = [...stage.bots.values()].filter((bot) => bot.endsOrphans && stage.bot(bot.name))
  const isOrphan = (run) => run.isKept && run.mustBeRecorded && !run.registryLost && !stage.bot(run.bot)
  const left = () => (watcher ? runsOf(stage).filter((run) => isOrphan(run) && run.isAlive()) : [])
  const giveUpAt = performance.now() + ALONE_MS
  while (left().length > 0 && performance.now() < giveUpAt) await delay(10)
  const overlooked = left().map((run) => ({ bot: watcher.name, run: run.name }))
  for (const bot of stage.bots.values())
    if (bot.hasWatched && stage.bot(bot.name)) await stage.order(bot, 'unwatch', [], { awaited: true })
  return overlooked
}

/** How the bots that are left go. Whichever it is, all that they own is to be gone. */
const WAYS = {
  kill: (_, bot) => bot.process.signal('SIGKILL'),
  leave: (stage, bot) => stage.order(bot, 'leave', []),
  shutdown: (_, bot) => bot.process.signal('SIGKILL'),
}

/** When bots have ended their runs, they are to be as they were before the first one. */
async function comeToRest(stage) {
  if (stage.plan.setting.curtain !== 'shutdown') return
  for (const bot of stage.bots.values()) {
    if (!stage.bot(bot.name)) continue
    await shutDown(stage, bot)
    if (bot.before) bot.after = await settled(bot)
  }
}

function shutDown(stage, bot) {
  const over = stage.during((run) => run.bot === bot.name, 'shutdown')
  const heard = ({ exits }) => stage.claimAll(`shutdown() of ${bot.name}`, exits)
  return stage.order(bot, 'shutdown', [{ graceMs: 0 }], { awaited: true, over, heard })
}

/** No more of anything than before, or what there is after a while. */
async function settled(bot) {
  const giveUpAt = performance.now() + SETTLED_MS
  for (;;) {
    const now = measure(bot.process.pid)
    const isSettled = Object.keys(now).every(
      (it) => it === 'rssKb' || now[it] <= bot.before[it] + leftByOthers(it, bot),
    )
    if (isSettled || performance.now() > giveUpAt) return now
    await delay(20)
  }
}

async function everybodyGoes(stage) {
  const bots = [...stage.bots.values()].filter(({ isUp }) => isUp)
  for (const bot of bots) {
    stage.expectEnd(bot, 'curtain')
    WAYS[stage.plan.setting.curtain](stage, bot)
  }
  await within(Promise.all(bots.map(({ ended }) => ended)), SETTLED_MS)
  for (const bot of bots) bot.process.signal('SIGKILL')
}

/** Runs that somebody is left to end, and that nobody was to keep. */
async function goneAlone(stage) {
  // Those that had no time to take hold of their witness are found among the processes that are left.
  for (const run of runsOf(stage)) run.witness.release()
  const watched = runsOf(stage).filter(
    ({ isKept, facts }) => !isKept && !(facts.lost.includes('keeper') && facts.lost.includes('zygote')),
  )
  const giveUpAt = performance.now() + ALONE_MS
  while (watched.some((run) => !run.isGone()) && performance.now() < giveUpAt) await delay(5)
  return watched.filter((run) => !run.isGone()).map((run) => ({ run: run.name, who: run.witness.holders() }))
}

async function entriesLeft(stage) {
  const giveUpAt = performance.now() + SETTLED_MS
  const left = () => [...readRegistry(stage.registryPath).runIds]
  while (left().length > 0 && performance.now() < giveUpAt) await delay(10)
  return left()
}

function logOf(stage) {
  const path = join(dirname(stage.registryPath), 'orphan-events.log')
  return existsSync(path) ? readFileSync(path, 'utf8').trim().split('\n') : []
}

/** Whoever is there and ought not to be: all but the lab, its strangers, and what was excused before. */
async function processesLeft(stage, survivors) {
  const known = new Set([1, process.pid, ...stage.strangers.map(({ pid }) => pid)])
  const excused = survivors.map(({ witness }) => witness.path)
  // Their helpers, and the roots whose zombies those keep.
  const patient = stage.keepersMayStay ? runsOf(stage) : survivors
  const helpers = patient.flatMap(({ keeper, zygote }) => [keeper?.pid, zygote?.pid])
  const isHelpers = (pid) => helpers.includes(pid) || helpers.includes(statOf(pid)?.parent)
  for (const run of runsOf(stage)) if (run.isStranger) known.add(run.root.pid)
  const isExcused = (pid) => holdsAny(pid, excused) || holdsAny(statOf(pid)?.parent, excused)
  // Looked at last: who is gone by then, as one of a hydra's heads, has held nothing when it was asked.
  const left = () =>
    processes().filter((pid) => !known.has(pid) && !isHelpers(pid) && !isExcused(pid) && statOf(pid))
  const giveUpAt = performance.now() + SETTLED_MS
  while (left().length > 0 && performance.now() < giveUpAt) await delay(10)
  return left().map(describe)
}
