// A start that fails between its two native steps: the command runs already, and whoever has begun it does not come to finish it.
// Nothing of it is left, and no entry.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { addon, program } from './support/fixtures.mjs'
import { openRegistry, until } from './support/registry.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
/** The native side of spawnOwned. */
const { Host } = createRequire(import.meta.url)(addon)

for (const [what, failures] of [
  ['it is ended at once', 1],
  ['it is ended by the next start, if it could not be at once', 2],
]) {
  test(what, options, async (t) => {
    const registry = openRegistry(t)
    const supervisor = registry.supervise()
    const witness = openWitness(t)
    const finish = Host.prototype.finish
    let left = failures
    t.after(() => {
      Host.prototype.finish = finish
    })
    Host.prototype.finish = function (...args) {
      if (left-- > 0) throw new RangeError('no stack left')
      return finish.apply(this, args)
    }
    // It holds the witness from its very beginning.
    const stdio = ['ignore', 'pipe', 'ignore', witness.writeEnd]
    const start = () => supervisor.spawnOwned(program('stays'), [witness.path], { runId: 'begun', stdio })
    assert.throws(start, { name: 'RangeError' })
    witness.release()
    if (failures > 1) {
      assert.equal(supervisor.list()[0]?.runId, 'begun', 'nothing runs that has no entry')
      await supervisor.spawnOwned('true', { stdio: 'ignore' }).wait()
    }
    await witness.gone(20_000)
    await until(() => supervisor.list().length === 0, 'its entry is gone')
    await registry.settled()
    assert.deepEqual(registry.entries(), [])
    // And its id can be had again.
    assert.equal(
      (await supervisor.spawnOwned('true', { runId: 'begun', stdio: 'ignore' }).wait()).reason,
      'exit',
    )
  })
}
