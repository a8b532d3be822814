// A start that fails between its two native steps: begin() has started the command, and finish()
// throws.
// The command must end, and the registry must keep no entry for it.
import { createRequire } from 'node:module'
import { addon, assert, openWitness, options, program, test } from '../support/prelude.mjs'
import { openRegistry, until } from '../support/registry.mjs'

/** The native side of spawnOwned. */
const { Host } = createRequire(import.meta.url)(addon)

for (const [name, failures] of [
  ['a failed start ends the command at once', 1],
  ['the next start ends the command if the failed start could not', 2],
]) {
  test(name, options, async (t) => {
    const registry = openRegistry(t)
    const supervisor = registry.supervise()
    const witness = openWitness(t)
    const finish = Host.prototype.finish
    let failuresLeft = failures
    t.after(() => {
      Host.prototype.finish = finish
    })
    Host.prototype.finish = function (...args) {
      if (failuresLeft-- > 0) throw new RangeError('no stack left')
      return finish.apply(this, args)
    }
    // The command inherits the write end, so it holds the witness from its first instruction.
    const stdio = ['ignore', 'pipe', 'ignore', witness.writeEnd]
    const start = () => supervisor.spawnOwned(program('stays'), [witness.path], { runId: 'begun', stdio })
    assert.throws(start, { name: 'RangeError' })
    witness.release()
    if (failures > 1) {
      assert.equal(supervisor.list()[0]?.runId, 'begun', 'the running command has a registry entry')
      await supervisor.spawnOwned('true', { stdio: 'ignore' }).wait()
    }
    await witness.gone(20_000)
    await until(() => supervisor.list().length === 0, 'the registry entry is gone')
    await registry.settled()
    assert.deepEqual(registry.entries(), [])
    // A later run can use the same id.
    assert.equal(
      (await supervisor.spawnOwned('true', { runId: 'begun', stdio: 'ignore' }).wait()).reason,
      'exit',
    )
  })
}
