// Supervisors on a registry with a fault.
import { abandoned } from './abandoned.mjs'
import { assert, openWitness, program } from './prelude.mjs'
import { until } from './registry.mjs'

/** A supervisor that collects its registry events in `received`; `event(kind)` waits for one. */
export function superviseWithEvents(registry) {
  const supervisor = registry.supervise()
  const received = []
  supervisor.on('event', (event) => event.type === 'registry' && received.push(event))
  const event = (kind) => until(() => received.find((it) => it.kind === kind), `an event ${kind}`)
  return Object.assign(supervisor, { received, event })
}

/** Starts a run of `supervisor` that stays. */
export async function standing(t, { spawnOwned }) {
  const witness = openWitness(t)
  const run = spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
  await witness.ready(1)
  return { run, witness }
}

/**
 * Asserts that the registry works: a run starts, is listed, is in the file, and is removed from it.
 */
export async function works(t, registry, supervisor) {
  const { run } = await standing(t, supervisor)
  assert.ok(supervisor.list().some(({ runId }) => runId === run.runId))
  await registry.has(run.runId, 'running')
  await run.cancel()
  await registry.lacks(run.runId)
}

/** Asserts that nothing can be started or registered. */
export async function startsNothing(t, { spawnOwned, registerProcess }, code) {
  const witness = openWitness(t)
  const stdio = ['ignore', 'ignore', 'ignore', witness.writeEnd]
  assert.throws(() => spawnOwned(program('stays'), [witness.path], { stdio }), { code })
  witness.release()
  await witness.gone(20_000)
  const { pid, witness: bystander } = await abandoned(t)
  assert.throws(() => registerProcess({ pid }), { code })
  assert.equal(bystander.isGone(), false)
}
