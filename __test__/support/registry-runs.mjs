// Runs on a registry of their own.
import { openWitness, program } from './prelude.mjs'
import { openRegistry } from './registry.mjs'

/** A registry, a supervisor on it, and a run that stays until its witness is closed. */
export async function withRun(t, options) {
  const witness = openWitness(t)
  const registry = openRegistry(t)
  const supervisor = registry.supervise()
  const run = supervisor.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore', ...options })
  await witness.ready(1)
  return { witness, registry, supervisor, run }
}
