import { hostileTrees } from '../../__test__/support/hostile-trees.mjs'
import { instant } from '../../__test__/support/random.mjs'
import { openWitness } from '../../__test__/support/witness.mjs'
import { Bystanders } from './lib/bystanders.mjs'
import { Scope, Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

const TIMES_EACH = 200
/** Of the run that is cancelled; bystanders have almost its cookie. */
const RUN_ID = `stress-${process.pid}-cancelled`

export const what = `every hostile tree is cancelled ${TIMES_EACH} times: nothing is left in the moment in which that is said, and what is said is true`
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

/** A third of the trees is cancelled while it is being born, the others when they stand; half of those by their id. */
async function playRound(loop, scope, { supervisor }, bystanders, tree) {
  const isNewborn = loop.random() < 1 / 3
  const byId = loop.random() < 0.5
  const afterMs = loop.random() * (isNewborn ? 5 : 20)
  const witness = openWitness(scope)
  // It travels as a descriptor: a process that has not yet got as far as opening it holds it all the same.
  const stdio = ['pipe', 'ignore', 'ignore', witness.writeEnd]
  const child = supervisor.spawnOwned(...tree.command(witness.path), { stdio, runId: RUN_ID, graceMs: 100 })
  scope.after(() => child.stdin.destroy())
  if (!isNewborn) await witness.ready(tree.ready)
  await instant(afterMs)

  const asked = performance.now()
  const exit = byId ? (await supervisor.cancel(RUN_ID)).exits[0] : await child.cancel()
  loop.time(performance.now() - asked)
  witness.release()
  const when = `${tree.name}, cancelled ${afterMs.toFixed(3)} ms after ${isNewborn ? 'its start' : 'it stood'}`
  if (!witness.isGone()) {
    loop.count('survivors')
    throw new Wrong(`${when}: resolved although processes exist:\n${witness.holders()}`)
  }
  bystanders.mustLive(loop, when)
  if (exit.reason !== 'manual-cancel' || exit.survivors.length + exit.escaped.length > 0 || exit.timedOut)
    throw new Wrong(`${when}: told as ${JSON.stringify(exit)}`)
}
