/**
 * The end of a round. Everything that was made difficult is made easy again; what was asked is answered; then the bots go, and what
 * they leave is to be gone without anybody's help; then a last bot reaps, and nothing of any run may be left at all.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { describe, holdsAny, measure, processes, readRegistry } from './witness.mjs'

/** Keepers give 1.5 s at most, and then kill. On a machine with a load of 10 all of it takes its time. */
const ALONE_MS = 15_000
const SETTLED_MS = 15_000
const LAST = 'Z'

export async function lowerCurtain(stage) {
  await stage.relent()
  stage.continueAll()
  await stage.allAnswered()
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
    alone,
    survivors: left,
    entries,
    log: logOf(stage),
    processes: await processesLeft(stage, survivors),
  }
}

const runsOf = (stage) => [...stage.runs.values()]

/** Bots without runs are to be as they were. */
async function comeToRest(stage) {
  for (const bot of stage.bots.values()) {
    if (!stage.bot(bot.name)) continue
    await stage.within(cancelOwn(stage, bot), SETTLED_MS)
    bot.after = await settled(bot)
  }
}

function cancelOwn(stage, bot) {
  const over = stage.during((run) => run.bot === bot.name, 'shutdown')
  return stage.order(bot, 'shutdown', [{ graceMs: 0 }], {
    awaited: true,
    over,
    heard: ({ exits }) => stage.claimAll(`shutdown() of ${bot.name}`, exits),
  })
}

async function settled(bot) {
  return measure(bot.process.pid)
}

async function everybodyGoes(stage) {
  const bots = [...stage.bots.values()].filter(({ isUp }) => isUp)
  for (const bot of bots) {
    stage.expectEnd(bot, 'kill')
    bot.process.signal('SIGKILL')
  }
  await stage.within(Promise.all(bots.map(({ ended }) => ended)), SETTLED_MS)
}

/** Runs that somebody is left to end, and that nobody was to keep. */
async function goneAlone(stage) {
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
  for (const run of runsOf(stage)) if (run.isStranger) known.add(run.root.pid)
  const left = () => processes().filter((pid) => !known.has(pid) && !holdsAny(pid, excused))
  const giveUpAt = performance.now() + SETTLED_MS
  while (left().length > 0 && performance.now() < giveUpAt) await delay(10)
  return left().map(describe)
}

export const filesOf = (stage) => readdirSync(dirname(stage.registryPath))
