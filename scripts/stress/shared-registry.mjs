import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { openWitness } from '../../__test__/support/witness.mjs'
import { Scope, Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

const BOTS = 8
/** The runs that each bot keeps until the end. They must be in the file all the time. */
const HELD = 25
const IN_THE_FILE_MS = 2000

export const what = `${BOTS} bots on one registry, each round one spawn of each, while a reader parses the file all the time`
export const full = 200

export async function play(loop) {
  const registry = new StressRegistry()
  const scope = new Scope()
  try {
    await playAll(loop, scope, registry)
  } finally {
    await scope.close()
    await registry.close()
  }
}

async function playAll(loop, scope, registry) {
  const held = Math.min(HELD, Math.ceil(loop.rounds / 4))
  const witness = openWitness(scope)
  const bots = Array.from({ length: BOTS }, () => start(scope, 'spawns', registry, { held }, witness))
  const ids = (await Promise.all(bots.map((bot) => bot.says('held')))).flat()
  await inTheFile(registry, ids)

  const reader = start(scope, 'reads', registry, { ids })
  await reader.says('reading')
  loop.count('spawns', ids.length)
  loop.figures.rounds = held
  // In batches, so that the loop can be stopped.
  while (loop.figures.rounds < loop.rounds && !loop.isOver) {
    const count = Math.min(5, loop.rounds - loop.figures.rounds)
    const wrong = (await Promise.all(bots.map((bot) => bot.ask('spawn', { count })))).flat()
    for (const why of wrong) loop.fail(new Wrong(why))
    loop.figures.rounds += count
    loop.count('spawns', count * BOTS)
  }
  const { reads, invalid, lost } = await reader.ask('stop')
  Object.assign(loop.figures, { reads, invalid: invalid.length, lost: lost.length })
  for (const why of [...invalid, ...lost].slice(0, 5)) loop.fail(new Wrong(why))

  witness.release()
  await end(bots)
  await registry.reap()
  if (!witness.isGone()) {
    loop.count('survivors')
    loop.fail(new Wrong(`processes exist after the reap:\n${witness.holders()}`))
  }
  const left = registry.supervisor.list()
  loop.count('left', left.length)
  await registry.mustBeEmpty('after all bots have ended')
}

/** Half of the bots crash. Their keepers end the runs, and the reaper only drops the entries. */
async function end(bots) {
  const [crashing, leaving] = [bots.slice(0, BOTS / 2), bots.slice(BOTS / 2)]
  for (const bot of crashing) bot.kill()
  await Promise.all(leaving.map((bot) => bot.ask('end')))
  await Promise.all(bots.map(({ ended }) => ended))
}

async function inTheFile(registry, ids) {
  const giveUpAt = performance.now() + IN_THE_FILE_MS
  for (;;) {
    const there = new Set(registry.read()?.map(({ runId }) => runId))
    const missing = ids.filter((id) => !there.has(id))
    if (missing.length === 0) return
    if (performance.now() > giveUpAt) throw new Wrong(`not in the file: ${missing.join(', ')}`)
    await delay(10)
  }
}

/**
 * A process of bots/ that takes requests and answers them, each as a line of JSON: `{ order, … }`
 * and `{ said, value }`.
 */
function start(scope, name, registry, task, witness) {
  const program = fileURLToPath(new URL(`./bots/${name}.mjs`, import.meta.url))
  const child = spawn(process.execPath, [program, JSON.stringify(task)], {
    env: { ...process.env, SPAWN_OWNED_REGISTRY: registry.path },
    stdio: ['pipe', 'pipe', 'inherit', witness?.writeEnd ?? 'ignore'],
    // Only the loop gets Ctrl-C.
    detached: true,
  })
  scope.after(() => child.kill('SIGKILL'))
  child.stdin.on('error', () => {})
  const lines = createInterface({ input: child.stdout })
  const ended = once(child, 'exit')
  const died = ended.then(([code, signal]) => {
    throw new Wrong(`${name} ended with ${code ?? signal}`)
  })
  died.catch(() => {})
  const says = async (what) => {
    const [line] = await Promise.race([once(lines, 'line'), died])
    const { said, value } = JSON.parse(line)
    if (said !== what) throw new Wrong(`${name} sent "${said}" instead of "${what}"`)
    return value
  }
  return {
    ended,
    says,
    ask(order, more) {
      child.stdin.write(`${JSON.stringify({ order, ...more })}\n`)
      return says(order)
    },
    kill: () => child.kill('SIGKILL'),
  }
}
