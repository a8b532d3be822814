// Runs that have lost their bot, in every way there is, and what a report must say of them.
import assert from 'node:assert/strict'
import { captureStartToken } from 'spawn-owned'
import { assertAlive, bystander, freshRegistry, startBot, supervise, until } from './bots.mjs'
import { treeNamed } from './hostile-trees.mjs'
import { isWindows, isWine } from './system.mjs'
import { openWitness } from './witness.mjs'

export const GRACE_MS = 300

/** A run of a bot that lives, standing, and its record. */
export async function owned(
  t,
  {
    tree = treeNamed(isWine ? 'cleared-environment' : 'half-setsid'),
    path = freshRegistry(),
    bot,
    ...more
  } = {},
) {
  bot ??= await startBot(t, path)
  const witness = openWitness(t)
  const [command, args] = tree.command(witness.path)
  const { runId, pid } = await bot.ask('spawn', command, args, { graceMs: GRACE_MS, ...more })
  await witness.ready(tree.ready)
  const next = supervise(path)
  // The command may be faster than its bot's notes.
  const record = await until(
    () => next.list({ runId }).find(({ state }) => state === 'running'),
    'it is on record',
  )
  assert.equal(record.pid, pid)
  return { bot, next, path, pid, record, runId, witness }
}

/**
 * The same when bot, zygote and keepers were killed together: nobody is left who would end it. On Windows the kernel always is, and
 * only a run that was to be kept lives on.
 */
export async function crashed(t, more) {
  // There the rest is ended when the root leaves, and that does at the end of its input.
  const run = await owned(t, isWindows ? { ...more, stdio: 'ignore', onOwnerExit: 'keep' } : more)
  await run.bot.killWithHelpers()
  assertAlive(run.witness)
  return run
}

/** The same when the bot was killed and the keeper was told to keep the run. */
export async function kept(t, more) {
  const run = await owned(t, { onOwnerExit: 'keep', ...more })
  await run.bot.kill()
  assertAlive(run.witness)
  return run
}

/** A crashed run in a registry whose record was altered. */
export async function crashedAs(t, alter, more) {
  const run = await crashed(t, more)
  const record = { ...run.record, ...alter(run.record) }
  const path = freshRegistry([record])
  return { ...run, record, path, next: supervise(path) }
}

/** A bystander, and a registry that says it is a run of a bot that is dead. */
export async function mistaken(t, alter, more) {
  const stranger = await bystander(t, more)
  const { record } = await crashed(t)
  const startToken = captureStartToken(stranger.pid)
  const nobody = { keeper: undefined, job: undefined }
  const group = isWindows
    ? { pgid: null, containment: 'process' }
    : { pgid: stranger.pid, containment: 'group' }
  const entry = { ...record, pid: stranger.pid, startToken, ...nobody, ...group }
  const altered = { ...entry, runId: 'mistaken', ...alter(entry) }
  const path = freshRegistry([altered])
  return { ...stranger, path, record: altered, next: supervise(path) }
}

/** What the report must say, everything else being empty. */
export function assertReport(report, expected) {
  const { killed, alreadyDead, skipped, failed, adopted, decisions } = report
  const lists = { killed, alreadyDead, skipped: skipped.map(({ pid }) => pid) }
  const rest = { failed: failed.map(({ pid }) => pid), adopted: adopted.map(({ pid }) => pid) }
  const wanted = { killed: [], alreadyDead: [], skipped: [], failed: [], adopted: [], ...expected }
  assert.deepEqual({ ...lists, ...rest }, wanted, JSON.stringify(decisions, null, 1))
}
