// Runs that have lost their bot, in every possible way, and the expected reports.
import assert from 'node:assert/strict'
import { captureStartToken } from 'spawn-owned'
import { assertAlive, bystander, freshRegistry, startBot, supervise, until } from './bots.mjs'
import { treeNamed } from './hostile-trees.mjs'
import { isWindows, isWine } from './system.mjs'
import { openWitness } from './witness.mjs'

export const GRACE_MS = 300

/** A ready run of a live bot, and its record. */
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
  // The command may be ready before its bot has recorded it.
  const record = await until(
    () => next.list({ runId }).find(({ state }) => state === 'running'),
    'it is on record',
  )
  assert.equal(record.pid, pid)
  return { bot, next, path, pid, record, runId, witness }
}

/**
 * Like `owned`, but bot, zygote and keepers were killed together, so no process is left to end the
 * run. On Windows the kernel always ends it, and only a kept run survives.
 */
export async function crashed(t, more) {
  // On Windows the rest ends with the root, which exits at the end of its input.
  const run = await owned(t, isWindows ? { ...more, stdio: 'ignore', onOwnerExit: 'keep' } : more)
  await run.bot.killWithHelpers()
  assertAlive(run.witness)
  return run
}

/** Like `owned`, but the bot was killed and the keeper keeps the run. */
export async function kept(t, more) {
  const run = await owned(t, { onOwnerExit: 'keep', ...more })
  await run.bot.kill()
  assertAlive(run.witness)
  return run
}

/** A crashed run in a registry with an altered record. */
export async function crashedAs(t, alter, more) {
  const run = await crashed(t, more)
  const record = { ...run.record, ...alter(run.record) }
  const path = freshRegistry([record])
  return { ...run, record, path, next: supervise(path) }
}

/** A bystander, and a registry that contains it as a run of a dead bot. */
export async function mistaken(t, alter, more) {
  const stranger = await bystander(t, more)
  const { record } = await crashed(t)
  const startToken = captureStartToken(stranger.pid)
  const deadBot = { keeper: undefined, job: undefined }
  const group = isWindows
    ? { pgid: null, containment: 'process' }
    : { pgid: stranger.pid, containment: 'group' }
  const entry = { ...record, pid: stranger.pid, startToken, ...deadBot, ...group }
  const altered = { ...entry, runId: 'mistaken', ...alter(entry) }
  const path = freshRegistry([altered])
  return { ...stranger, path, record: altered, next: supervise(path) }
}

/** The value of SPAWN_OWNED_RUN in a process of the run. */
export const cookieOf = ({ runId, cookieKey }) => `${runId}:~${cookieKey}`

/** Asserts the content of a report; all other lists must be empty. */
export function assertReport(report, expected) {
  const { killed, alreadyDead, skipped, failed, adopted, decisions } = report
  const lists = { killed, alreadyDead, skipped: skipped.map(({ pid }) => pid) }
  const rest = { failed: failed.map(({ pid }) => pid), adopted: adopted.map(({ pid }) => pid) }
  const wanted = { killed: [], alreadyDead: [], skipped: [], failed: [], adopted: [], ...expected }
  assert.deepEqual({ ...lists, ...rest }, wanted, JSON.stringify(decisions, null, 1))
}
