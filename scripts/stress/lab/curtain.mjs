/**
 * The end of a round. The lab removes all faults and waits until every request is answered. Then
 * the bots end, and what they leave must disappear without help. Then a last bot reaps. After that
 * no process of any run may exist.
 */

import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { leftByOthers } from './invariants.mjs'
import { describeProcess, holdsAny, measure, processes, readRegistry, statOf, within } from './witness.mjs'

/**
 * Keepers wait 1.5 s at most, and then send SIGKILL. A machine with a load of 10 needs more time.
 */
const ALONE_MS = 15_000
const SETTLED_MS = 15_000
const LAST = 'Z'

export async function endRound(stage) {
  await stage.removeFaults()
  stage.continueAll()
  await stage.allAnswered()
  const overlooked = await leftByWatches(stage)
  for (const bot of stage.bots.values()) if (stage.bot(bot.name)) await checkSockets(stage, bot)
  await shutDownBots(stage)
  await endBots(stage)
  const alone = await goneAlone(stage)
  const last = await stage.startBot(LAST)
  await stage.reap(last, { policy: 'terminate', dryRun: false }, true)
  const survivors = runsOf(stage).filter((run) => !run.isBystander && !run.isGone())
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

/**
 * Kept runs without a bot that still exist after ALONE_MS, although a bot watches for orphans and
 * ends them.
 */
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

/** How the remaining bots end. In each case all their runs must end too. */
const WAYS = {
  kill: (_, bot) => bot.process.signal('SIGKILL'),
  leave: (stage, bot) => stage.order(bot, 'leave', []),
  shutdown: (_, bot) => bot.process.signal('SIGKILL'),
}

/**
 * After the bots have ended their runs, they must have the same resources as before the first run.
 */
async function shutDownBots(stage) {
  if (stage.plan.setting.curtain !== 'shutdown') return
  for (const bot of stage.bots.values()) {
    if (!stage.bot(bot.name)) continue
    await shutDown(stage, bot)
    await checkSockets(stage, bot)
    if (bot.hasPassedStdout) await stage.order(bot, 'release', [], { awaited: true })
    if (bot.before) bot.after = await settled(bot)
  }
}

/**
 * Runs have ended whose file descriptors the bot had passed to a worker. The bot's own sockets must
 * still answer.
 */
async function checkSockets(stage, bot) {
  if (!bot.hasPassedStdout) return
  await stage.order(bot, 'checkSockets', [], { awaited: true, onResult: (deaf) => (bot.deaf = deaf) })
}

function shutDown(stage, bot) {
  const over = stage.during((run) => run.bot === bot.name, 'shutdown')
  const onResult = ({ exits }) => stage.claimAll(`shutdown() of ${bot.name}`, exits)
  return stage.order(bot, 'shutdown', [{ graceMs: 0 }], { awaited: true, over, onResult })
}

/** The resources of the bot, as soon as none exceeds the first measurement, or after SETTLED_MS. */
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

async function endBots(stage) {
  const bots = [...stage.bots.values()].filter(({ isUp }) => isUp)
  for (const bot of bots) {
    stage.expectEnd(bot, 'curtain')
    WAYS[stage.plan.setting.curtain](stage, bot)
  }
  await within(Promise.all(bots.map(({ ended }) => ended)), SETTLED_MS)
  for (const bot of bots) bot.process.signal('SIGKILL')
}

/**
 * Waits for the runs that still have a keeper or a zygote and that are not kept. Returns those that
 * did not end.
 */
async function goneAlone(stage) {
  // A run that had no time to open its witness is found among the remaining processes.
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

/**
 * Processes that should not exist: all except the lab, its bystanders, and what was excused before.
 */
async function processesLeft(stage, survivors) {
  const known = new Set([1, process.pid, ...stage.bystanders.pids])
  const excused = survivors.map(({ witness }) => witness.path)
  // Helpers of surviving runs, and roots whose zombies these helpers have not reaped.
  const patient = stage.keepersMayStay ? runsOf(stage) : survivors
  const helpers = patient.flatMap(({ keeper, zygote }) => [keeper?.pid, zygote?.pid])
  const isHelpers = (pid) => helpers.includes(pid) || helpers.includes(statOf(pid)?.parent)
  for (const run of runsOf(stage)) if (run.isBystander) known.add(run.root?.pid)
  const isExcused = (pid) => holdsAny(pid, excused) || holdsAny(statOf(pid)?.parent, excused)
  // statOf comes last, because a process that has exited (for example a child of the hydra) holds
  // no file and is not excused by holdsAny. A zombie of the namespace's init is dead, and only init
  // can reap it.
  const isThere = (stat) => stat !== undefined && (stat.state !== 'Z' || stat.parent !== 1)
  const left = () =>
    processes().filter((pid) => !known.has(pid) && !isHelpers(pid) && !isExcused(pid) && isThere(statOf(pid)))
  const giveUpAt = performance.now() + SETTLED_MS
  while (left().length > 0 && performance.now() < giveUpAt) await delay(10)
  return left().map(describeProcess)
}
