import { hostileTrees } from '../../__test__/support/hostile-trees.mjs'
import { instant } from '../../__test__/support/random.mjs'
import { openWitness } from '../../__test__/support/witness.mjs'
import { Bystanders } from './lib/bystanders.mjs'
import { Scope, Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

const TIMES_EACH = 200
/** The id of the run that is cancelled. The bystanders have almost its cookie. */
const RUN_ID = `stress-${process.pid}-cancelled`

export const what = `every hostile tree is cancelled ${TIMES_EACH} times: no process exists when cancel() resolves, and its result is true`
export const full = TIMES_EACH * hostileTrees.length

export async function play(loop) {
  const registry = new StressRegistry()
  const whole = new Scope()
  const bystanders = new Bystanders(whole, RUN_ID, registry.supervisor)
  await loop.each((scope, round) =>
    playRound(loop, scope, registry, bystanders, hostileTrees[round % hostileTrees.length]),
  )
  await whole.close()
  await registry.close()
}

/**
 * Cancels a third of the trees while they start, the others when they are ready. Half of these are
 * cancelled by id.
 */
async function playRound(loop, scope, { supervisor }, bystanders, tree) {
  const isNewborn = loop.random() < 1 / 3
  const byId = loop.random() < 0.5
  const afterMs = loop.random() * (isNewborn ? 5 : 20)
  const witness = openWitness(scope)
  // The command inherits the witness as a file descriptor, so a process holds it even before it
  // opens the path.
  const stdio = ['pipe', 'ignore', 'ignore', witness.writeEnd]
  const child = supervisor.spawnOwned(...tree.command(witness.path), { stdio, runId: RUN_ID, graceMs: 100 })
  scope.after(() => child.stdin.destroy())
  if (!isNewborn) await witness.ready(tree.ready)
  await instant(afterMs)

  const asked = performance.now()
  const exit = byId ? (await supervisor.cancel(RUN_ID)).exits[0] : await child.cancel()
  loop.time(performance.now() - asked)
  witness.release()
  const when = `${tree.name}, cancelled ${afterMs.toFixed(3)} ms after ${isNewborn ? 'its start' : 'it was ready'}`
  if (!witness.isGone()) {
    loop.count('survivors')
    throw new Wrong(`${when}: resolved, but processes exist:\n${witness.holders()}`)
  }
  bystanders.mustLive(loop, when)
  if (exit.reason !== 'manual-cancel' || exit.survivors.length + exit.escaped.length > 0 || exit.timedOut)
    throw new Wrong(`${when}: unexpected result ${JSON.stringify(exit)}`)
}
