// Runs of this process in their own cgroups, and what must hold after their end.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { list, spawnOwned } from 'spawn-owned'
import { assertGone } from './bots.mjs'
import { openWitness } from './witness.mjs'

export const inCgroup = { containment: 'cgroup' }

/** A ready tree in a cgroup, and the path of the cgroup. */
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
  assert.equal(existsSync(cgroup), false, 'its cgroup still exists')
}
