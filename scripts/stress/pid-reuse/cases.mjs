/**
 * Whose number a stranger gets. Each case has a bot leave runs behind, some of which are true orphans, gives the numbers of
 * the others away and has them reaped: `{ reused, strangers, orphans, report }`.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { childrenOf, isHelper, keeperOf, killWithHelpers } from '../../../__test__/support/bots.mjs'
import { program } from '../../../__test__/support/fixtures.mjs'
import { openWitness } from '../../../__test__/support/witness.mjs'
import { continueAt, free, killAndFree, startAs } from './numbers.mjs'

const botProgram = fileURLToPath(new URL('../bots/leaves-runs.mjs', import.meta.url))
const MOST = 8
/** Farther than the numbers of one round are apart. */
const OUT_OF_THE_WAY = 200

/** A bot that has done its work: `count` processes, spawned or registered, that stand. */
async function startBot(scope, { registry, how, count }, start = (run) => run()) {
  const witnesses = Array.from({ length: count }, () => openWitness(scope))
  const task = { how, command: program('stays'), witnesses: witnesses.map(({ path }) => path) }
  const bot = start(() =>
    spawn(process.execPath, [botProgram, JSON.stringify(task)], {
      env: { ...process.env, SPAWN_OWNED_REGISTRY: registry.path },
      stdio: ['pipe', 'pipe', 'inherit'],
    }),
  )
  scope.after(() => bot.kill('SIGKILL'))
  bot.lines = createInterface({ input: bot.stdout })
  bot.ended = once(bot, 'exit')
  const [line] = await once(bot.lines, 'line')
  for (const witness of witnesses) await witness.ready(1)
  bot.runs = JSON.parse(line).map((pid, index) => ({ pid, witness: witnesses[index] }))
  return bot
}

/** SIGKILL of the bot and all its helpers, none of which gets to do anything about it. Their numbers are free then. */
async function crash(bot) {
  const zygotes = childrenOf(bot.pid).filter(isHelper)
  const helpers = [...zygotes, ...zygotes.flatMap((zygote) => childrenOf(zygote).filter(isHelper))]
  await killWithHelpers(bot.pid)
  await bot.ended
  for (const pid of helpers) await free(pid)
}

/** A group that goes on under the number of a leader that is no more. The one in it gets a number that nobody waits for. */
const LEAVES = `echo $(($$ + ${OUT_OF_THE_WAY})) >/proc/sys/kernel/ns_last_pid; "$@" & exit 0`

/** Nobody's run, with this number. */
async function strangerAs(scope, pid, { leads = false, leaves = false } = {}) {
  const witness = openWitness(scope)
  const stays = [program('stays'), witness.path]
  const [command, ...args] = leaves ? ['sh', '-c', LEAVES, 'sh', ...stays] : stays
  const child = startAs(pid, () => spawn(command, args, { stdio: 'ignore', detached: leads || leaves }))
  const ended = once(child, 'exit')
  scope.after(() => child.kill('SIGKILL'))
  await witness.ready(1)
  if (leaves) await ended
  return { pid, witness }
}

/** Some of the runs are left alone: they are to be reaped. Of the others the root ends, and a stranger gets its number. */
async function rootsGiven({ scope, registry, random, count }, stranger) {
  const how = random() < 0.5 ? 'spawn' : 'register'
  const bot = await startBot(scope, { registry, how, count: count + 2 })
  await crash(bot)
  const orphans = bot.runs.splice(0, 2)
  for (const { pid } of bot.runs) await killAndFree(pid)
  const strangers = []
  for (const { pid } of bot.runs) strangers.push(await strangerAs(scope, pid, stranger(random)))
  continueAt(bot.runs.at(-1).pid + OUT_OF_THE_WAY)
  return { reused: strangers.length, strangers, orphans, report: await registry.reap() }
}

/** A stranger gets the number of the bot, and perhaps those of its keepers. */
async function botGiven({ scope, registry, count }, { keepers }) {
  const how = keepers ? 'spawn' : 'register'
  const bot = await startBot(scope, { registry, how, count: keepers ? count : 1 })
  const numbers = keepers ? registry.supervisor.list().map(keeperOf) : [bot.pid]
  await crash(bot)
  const strangers = []
  for (const pid of numbers) strangers.push(await strangerAs(scope, pid, { leads: true }))
  continueAt(Math.max(...numbers) + OUT_OF_THE_WAY)
  return { reused: strangers.length, strangers, orphans: bot.runs, report: await registry.reap() }
}

/** The next bot gets the number of the bot before it, as in a container, and reaps what that one has left. */
async function botReborn({ scope, registry }) {
  const before = await startBot(scope, { registry, how: 'register', count: 1 })
  await crash(before)
  const next = await startBot(scope, { registry, how: 'register', count: 1 }, (run) =>
    startAs(before.pid, run),
  )
  next.stdin.write('reap\n')
  const [line] = await once(next.lines, 'line')
  const report = JSON.parse(line)
  // Its own process is its own, although the one before had the same number.
  const strangers = [...next.runs]
  scope.after(async () => {
    await crash(next)
    for (const { pid } of next.runs) await killAndFree(pid)
  })
  return { reused: 1, strangers, orphans: before.runs, report }
}

const bots = [
  { name: 'bot', most: 1, play: (stage) => botGiven(stage, { keepers: false }) },
  { name: 'bot reborn', most: 1, play: botReborn },
]

/** In turn. A bot has only one number to give away, so its turn comes more often. */
export const cases = [
  { name: 'root', most: MOST, play: (stage) => rootsGiven(stage, () => ({})) },
  ...bots,
  {
    name: 'group',
    most: MOST,
    play: (stage) => rootsGiven(stage, (random) => (random() < 0.5 ? { leads: true } : { leaves: true })),
  },
  ...bots,
  { name: 'keeper', most: MOST, play: (stage) => botGiven(stage, { keepers: true }) },
  ...bots,
]
