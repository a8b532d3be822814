// Runs of this process in cgroups of their own, and what must be true when they are over.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { list, spawnOwned } from 'spawn-owned'
import { assertGone } from './bots.mjs'
import { openWitness } from './witness.mjs'

export const inCgroup = { containment: 'cgroup' }

/** A tree that stands in a cgroup, and where that is. */
export async function standing(t, { command, ready }, more) {
  const witness = openWitness(t)
  const [file, args] = command(witness.path)
  const run = spawnOwned(file, args, {
    stdio: ['pipe', 'ignore', 'ignore'],
    graceMs: 250,
    ...inCgroup,
    ...more,
  })
  t.after(() => run.cancel({ graceMs: 0 }))
  await witness.ready(ready)
  const [record] = list({ runId: run.runId })
  return { run, witness, record, cgroup: record.cgroup }
}

export function assertOver(exit, { witness, cgroup }, reason) {
  assertGone(witness)
  assert.equal(exit.reason, reason)
  assert.deepEqual(exit.survivors, [])
  assert.equal(existsSync(cgroup), false, 'its cgroup is left')
}
