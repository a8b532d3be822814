import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { treeNamed } from '../../__test__/support/hostile-trees.mjs'
import { openWitness } from '../../__test__/support/witness.mjs'
import { killWithHelpers } from './all-killed.mjs'
import { runIds, startHostileBot } from './lib/hostile-bot.mjs'
import { Scope, Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

/** Processes beside each run: a thousand in all. */
const FORGERIES = 20

export const what =
  'processes with stale, cut and made-up cookies beside a run that is reaped: none of them is ended'
export const full = 50

export async function play(loop) {
  const registry = new StressRegistry()
  const whole = new Scope()
  // Keys of earlier runs with the same id.
  const stale = [randomBytes(16).toString('hex')]
  await loop.each((scope) => playRound(loop, scope, registry, stale))
  await whole.close()
  await registry.close()
}

async function playRound(loop, scope, registry, stale) {
  const tree = treeNamed('double-fork-daemon')
  const { bot, witness } = await startHostileBot(scope, {
    registry,
    tree,
    whileSpawning: false,
    containment: 'keeper',
  })
  const [runId] = runIds
  const { cookieKey } = registry.supervisor.list({ runId })[0]
  const others = openWitness(scope)
  const forged = Array.from({ length: FORGERIES }, () => forgery(loop, runId, cookieKey, stale))
  const children = forged.map((cookie) => {
    const env = { ...process.env, SPAWN_OWNED_RUN: cookie }
    return spawn('cat', { env, stdio: ['pipe', 'ignore', 'ignore', others.writeEnd], detached: true })
  })
  scope.after(() => {
    for (const child of children) child.stdin.destroy()
  })
  const ended = []
  for (const [index, child] of children.entries()) child.on('exit', () => ended.push(forged[index]))
  others.release()
  await killWithHelpers(loop, bot)
  await registry.reap()
  if (!witness.isGone()) throw new Wrong(`processes exist after the reap:\n${witness.holders()}`)
  // Gives the event loop time to report exits that have happened.
  await new Promise((resolve) => setTimeout(resolve, 20))
  loop.count('forged cookies', FORGERIES)
  if (ended.length > 0) {
    loop.count('bystanders', ended.length)
    throw new Wrong(`processes with these cookies were ended: ${ended.join(', ')}`)
  }
  await registry.mustBeEmpty('after a reap')
  stale.push(cookieKey)
}

/**
 * A cookie that does not make a process a member of the run: it has the id of the run, but not its
 * key.
 */
function forgery(loop, runId, key, stale) {
  const pick = (list) => list[Math.floor(loop.random() * list.length)]
  const at = Math.floor(loop.random() * key.length)
  const other = pick([...'0123456789abcdef'].filter((digit) => digit !== key[at]))
  return pick([
    () => runId,
    () => `outer:${runId}:inner`,
    () => `${runId}:~${pick(stale)}`,
    () => `${pick(stale)}:~${pick(stale)}:${runId}:~${pick(stale)}`,
    () => `${runId}:~${key.slice(0, at)}${other}${key.slice(at + 1)}`,
    () => `${runId}:~${key.slice(0, at)}`,
    () => `${runId}:~${key}${other}`,
    () => `${runId}:${key}`,
    () => `${runId}:~${key.toUpperCase() === key ? `${key}A` : key.toUpperCase()}`,
    () => `${runId}:~${randomBytes(16).toString('hex')}`,
  ])()
}
