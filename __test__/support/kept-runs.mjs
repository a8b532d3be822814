// Runs that are kept when their bot exits (onOwnerExit: 'keep').
import { execFileSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { entriesOf, freshRegistry, startBot, supervise, until } from './bots.mjs'
import { elusiveTree } from './hostile-trees.mjs'
import { openWitness, shellScript } from './prelude.mjs'
import { isWindows } from './system.mjs'

/** Starts a run to be kept and waits until it is ready. Its bot is alive. */
export async function keeping(t, { tree = elusiveTree(), path, bot, ...more } = {}) {
  path ??= freshRegistry()
  bot ??= await startBot(t, path)
  const witness = openWitness(t)
  const [command, args] = tree.command(witness.path)
  const runOptions = { graceMs: 300, onOwnerExit: 'keep', ...more }
  const { runId, pid } = await bot.ask('spawn', command, args, runOptions)
  await witness.ready(tree.ready)
  const next = supervise(path)
  // The command can be ready before its bot has recorded that it runs.
  await until(() => next.list({ runId })[0]?.state === 'running', 'the registry lists the run as running')
  return { bot, next, path, pid, runId, witness }
}

/** The same run after its bot was SIGKILLed. */
export async function kept(t, more) {
  const run = await keeping(t, more)
  await run.bot.kill()
  return run
}

/** A run to be kept that exits with the code that `exitWith` sends. */
export async function keepingUntilOrder(t, more) {
  let exitWith
  const tree = {
    ready: 1,
    command: (path) => {
      const orderPath = `${path}-order`
      if (!isWindows) execFileSync('mkfifo', [orderPath])
      exitWith = (code) => writeFile(orderPath, `${code}\n`)
      return shellScript('exits-on-order', path, orderPath)
    },
  }
  const run = await keeping(t, { tree, ...more })
  return { ...run, exitWith }
}

/** Resolves with the exit that the file has for the run. */
export const exited = ({ path, runId }) =>
  until(() => entriesOf(path).find((it) => it.runId === runId)?.exit, 'the end is recorded')
