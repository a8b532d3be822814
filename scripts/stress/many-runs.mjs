import { statOf } from '../../__test__/support/bots.mjs'
import { program } from '../../__test__/support/fixtures.mjs'
import { openWitness } from '../../__test__/support/witness.mjs'
import { Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

const RUNS = 4_000
/** Runs that are started in parallel. */
const AT_ONCE = 50

export const what = `${RUNS} runs are alive and the keeper of the youngest is killed: the daemon of that run is ended, and the report says so`
export const full = 1

export async function play(loop) {
  const registry = new StressRegistry()
  await loop.each((scope) => playRound(loop, scope, registry))
  await registry.close()
}

async function playRound(loop, scope, { supervisor }) {
  const others = []
  scope.after(() => Promise.all(others.map((child) => child.cancel({ signal: 'SIGKILL' }))))
  while (others.length < RUNS) {
    const batch = Array.from({ length: AT_ONCE }, () =>
      supervisor.spawnOwned('sleep', ['3600'], { stdio: 'ignore', graceMs: 1000 }),
    )
    others.push(...batch)
    await Promise.all(batch.map((child) => child.usage()))
  }
  const witness = openWitness(scope)
  const stdio = ['pipe', 'ignore', 'ignore']
  const child = supervisor.spawnOwned(program('double-fork-daemon'), [witness.path], { stdio, graceMs: 1000 })
  await witness.ready(2)
  const began = performance.now()
  process.kill(statOf(child.pid).parent, 'SIGKILL')
  const exit = await child.wait()
  loop.time(performance.now() - began)
  if (!witness.isGone())
    throw new Wrong(`result ${JSON.stringify(exit)}, but these processes exist:\n${witness.holders()}`)
  if (exit.reason !== 'lost' || exit.survivors.length > 0)
    throw new Wrong(`unexpected result ${JSON.stringify(exit)}`)
  const dead = others.filter(({ exitCode, signalCode }) => exitCode !== null || signalCode !== null)
  if (dead.length > 0) throw new Wrong(`${dead.length} other runs were ended`)
}
