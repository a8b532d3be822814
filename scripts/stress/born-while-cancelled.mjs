import { program } from '../../__test__/support/fixtures.mjs'
import { instant } from '../../__test__/support/random.mjs'
import { CLEANED_UP, NEWBORN, openWitness } from '../../__test__/support/witness.mjs'
import { Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

/** A process that gets no SIGTERM keeps its run alive for this long. */
const GRACE_MS = 60_000
/** A process that gets SIGTERM ends almost at once. The rest is reserve for a busy machine. */
const LATE_MS = 5_000
const TWICE = 'x'

export const what =
  'a tree is cancelled 0 to 12 ms after its start, while its processes fork, setsid, double-fork and exec: each gets SIGTERM once'
export const full = 2_000

export async function play(loop) {
  const registry = new StressRegistry()
  await loop.each((scope, round) => playRound(loop, scope, registry, round % 2 === 0 ? 'dies' : 'counts'))
  await registry.close()
}

async function playRound(loop, scope, { supervisor }, mode) {
  const afterMs = loop.random() * 12
  const witness = openWitness(scope)
  // The command inherits the witness as a file descriptor, so a process holds it even before it
  // opens the path.
  const child = supervisor.spawnOwned(program('starts-a-tree'), [witness.path, mode], {
    stdio: ['ignore', 'ignore', 'ignore', witness.writeEnd],
    graceMs: GRACE_MS,
  })
  await instant(afterMs)

  const asked = performance.now()
  let hurry = setTimeout(() => {
    hurry = null
    loop.count('late')
    child.cancel({ signal: 'SIGKILL' })
  }, LATE_MS)
  await child.cancel()
  loop.time(performance.now() - asked)
  clearTimeout(hurry)
  const when = `${mode}, cancelled ${afterMs.toFixed(3)} ms after its start`
  if (hurry === null) throw new Wrong(`${when}: a process got no SIGTERM within ${LATE_MS} ms`)
  witness.release()
  if (!witness.isGone()) throw new Wrong(`${when}: resolved although processes exist:\n${witness.holders()}`)
  if (mode === 'counts') {
    const [births, first, further] = [NEWBORN, CLEANED_UP, TWICE].map((mark) => witness.count(mark))
    if (further > 0 || births !== first)
      throw new Wrong(`${when}: of ${births} processes ${first} got SIGTERM, ${further} of them once more`)
  }
}
