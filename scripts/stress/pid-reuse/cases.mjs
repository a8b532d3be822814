/**
 * Whose PID a bystander gets. In each case a bot leaves runs, some of which are true orphans.
 * Bystanders get the PIDs of the others. Then a bot reaps: `{ reused, bystanders, orphans, report
 * }`.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { childrenOf, isHelper, keeperOf, killWithHelpers } from '../../../__test__/support/bots.mjs'
import { program } from '../../../__test__/support/fixtures.mjs'
import { openWitness } from '../../../__test__/support/witness.mjs'
import { Wrong } from '../lib/loop.mjs'
import { continueAt, free, killAndFree, startAs } from './numbers.mjs'

const botProgram = fileURLToPath(new URL('../bots/leaves-runs.mjs', import.meta.url))
const MOST = 8
/** Farther than the distance between the PIDs of one round. */
const OUT_OF_THE_WAY = 200

/** A bot that has started or registered `count` processes, which are ready. */
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

/** Kills the bot and all its helpers, before one of them can react. Then their PIDs are free. */
async function crash(bot) {
  const zygotes = childrenOf(bot.pid).filter(isHelper)
  const helpers = [...zygotes, ...zygotes.flatMap((zygote) => childrenOf(zygote).filter(isHelper))]
  await killWithHelpers(bot.pid)
  await bot.ended
  for (const pid of helpers) await free(pid)
}

/**
 * The leader of the group exits, and the group continues. The remaining process gets a PID that no
 * case needs.
 */
const LEAVES = `echo $(($$ + ${OUT_OF_THE_WAY})) >/proc/sys/kernel/ns_last_pid; "$@" & exit 0`

/** A process of no run, with this PID. */
async function bystanderAs(scope, pid, { leads = false, leaves = false } = {}) {
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

/**
 * Some runs stay as they are and must be reaped. For the others, the root ends and a bystander gets
 * its PID.
 */
async function rootsGiven({ scope, registry, random, count }, bystander) {
  const how = random() < 0.5 ? 'spawn' : 'register'
  const bot = await startBot(scope, { registry, how, count: count + 2 })
  await crash(bot)
  const orphans = bot.runs.splice(0, 2)
  for (const { pid } of bot.runs) await killAndFree(pid)
  const bystanders = []
  for (const { pid } of bot.runs) bystanders.push(await bystanderAs(scope, pid, bystander(random)))
  continueAt(bot.runs.at(-1).pid + OUT_OF_THE_WAY)
  return { reused: bystanders.length, bystanders, orphans, report: await registry.reap() }
}

/** A bystander gets the PID of the bot. With `keepers`, others get the PIDs of its keepers. */
async function botGiven({ scope, registry, count }, { keepers }) {
  const how = keepers ? 'spawn' : 'register'
  const bot = await startBot(scope, { registry, how, count: keepers ? count : 1 })
  const numbers = keepers ? registry.supervisor.list().map(keeperOf) : [bot.pid]
  await crash(bot)
  const bystanders = []
  for (const pid of numbers) bystanders.push(await bystanderAs(scope, pid, { leads: true }))
  continueAt(Math.max(...numbers) + OUT_OF_THE_WAY)
  return { reused: bystanders.length, bystanders, orphans: bot.runs, report: await registry.reap() }
}

/** The next bot gets the PID of the previous bot, as in a container, and reaps its runs. */
async function botReborn({ scope, registry }) {
  const before = await startBot(scope, { registry, how: 'register', count: 1 })
  await crash(before)
  const next = await startBot(scope, { registry, how: 'register', count: 1 }, (run) =>
    startAs(before.pid, run),
  )
  next.stdin.write('reap\n')
  const [line] = await once(next.lines, 'line')
  const report = JSON.parse(line)
  // The process of the new bot belongs to it, although the previous bot had the same PID.
  const bystanders = [...next.runs]
  scope.after(async () => {
    await crash(next)
    for (const { pid } of next.runs) await killAndFree(pid)
  })
  return { reused: 1, bystanders, orphans: before.runs, report }
}

/**
 * A bot holds a ChildProcess that it has registered and that has exited. Another registered process
 * gets its PID. The bot cancels and unregisters with the old handle, and the other process must
 * survive.
 */
async function handleHeld({ scope, registry, random, count }) {
  const bystanders = []
  for (let i = 0; i < count; i++) {
    const witness = openWitness(scope)
    const held = spawn(program('stays'), [witness.path], { stdio: 'ignore', detached: true })
    await witness.ready(1)
    const isGiven = random() < 0.5
    registry.supervisor.registerProcess({ pid: held.pid, ...(isGiven ? { process: held } : {}) })
    const exited = once(held, 'exit')
    held.kill('SIGKILL')
    await exited
    const bystander = await bystanderAs(scope, held.pid, { leads: random() < 0.5 })
    const { runId } = registry.supervisor.registerProcess({ pid: bystander.pid })
    await registry.supervisor.cancel(held, { graceMs: 0 })
    if (registry.supervisor.unregisterProcess(held))
      throw new Wrong(`the old handle unregistered ${held.pid}`)
    if (!registry.supervisor.unregisterProcess(runId))
      throw new Wrong(`the registry lost the entry of ${held.pid}`)
    bystanders.push(bystander)
    continueAt(held.pid + OUT_OF_THE_WAY)
  }
  return { reused: bystanders.length, bystanders, orphans: [], report: await registry.reap() }
}

const bots = [
  { name: 'bot', most: 1, play: (stage) => botGiven(stage, { keepers: false }) },
  { name: 'bot reborn', most: 1, play: botReborn },
]

/** Played in turn. A bot has only one PID, so its cases come more often. */
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
  { name: "a caller's handle", most: MOST, play: handleHeld },
]
