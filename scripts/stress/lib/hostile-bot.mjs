/** A bot with runs of a hostile tree, in its own process. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { openWitness } from '../../../__test__/support/witness.mjs'
import { Wrong } from './loop.mjs'

const program = fileURLToPath(new URL('../bots/hostile.mjs', import.meta.url))

/** The ids are the same in every round, and differ between loops that run in parallel. */
export const runIds = [0, 1, 2].map((index) => `stress-${process.pid}-${index}`)

/**
 * Returns when the bot is about to spawn its runs, or when its only run is ready. From then on only
 * the bot and its runs hold the witness.
 */
export async function startHostileBot(scope, { registry, tree, whileSpawning, containment }) {
  const witness = openWitness(scope)
  const [command, args] = tree.command(witness.path)
  const ids = runIds.slice(0, whileSpawning ? 3 : 1)
  const task = JSON.stringify({ command, args, runIds: ids, graceMs: 300, containment })
  const bot = spawn(process.execPath, [program, task], {
    env: { ...process.env, SPAWN_OWNED_REGISTRY: registry.path },
    stdio: ['pipe', 'pipe', 'pipe', witness.writeEnd, 'pipe'],
    // Only the loop gets Ctrl-C.
    detached: true,
  })
  scope.after(() => {
    for (const stream of [bot.stdin, bot.stdio[4]]) stream.destroy()
    bot.kill('SIGKILL')
  })
  bot.stdin.on('error', () => {})
  bot.complaint = ''
  bot.stderr.on('data', (text) => {
    bot.complaint += text
  })
  bot.ended = once(bot, 'exit')
  await Promise.race([once(bot.stdout, 'data'), bot.ended])
  if (bot.exitCode !== null) throw new Wrong(`the bot exited before it spawned a run:\n${bot.complaint}`)
  if (!whileSpawning) await witness.ready(tree.ready)
  return { bot, witness }
}
