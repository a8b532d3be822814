// Between the first signal and SIGKILL, each process of the tree gets the signal exactly once. This
// also holds for a process that starts, leaves the session or executes another program in that
// time, and for any size of the tree.
import { readFileSync } from 'node:fs'
import { spawnOwned } from 'spawn-owned'
import { isHelper, statOf } from '../support/bots.mjs'
import {
  assert,
  CLEANED_UP,
  describe,
  NEWBORN,
  openWitness,
  options,
  program,
  test,
} from '../support/prelude.mjs'
import { instant, sequence } from '../support/random.mjs'
import { linuxOnly, NO_SIGNALS, NO_SUBREAPER, posixOnly } from '../support/system.mjs'

/**
 * A process that gets no signal keeps its run open for this long. A process that gets it ends at
 * once.
 */
const GRACE_MS = 20_000
const LATE_MS = 8_000
const TWICE = 'x'
const SEED = 17

/**
 * Starts a tree whose processes fork, call setsid, double-fork and execute programs. The caller
 * cancels it or kills its keeper meanwhile.
 */
function startTree(t, mode) {
  const witness = openWitness(t)
  // The tree inherits the witness as a file descriptor, so a process holds it before it could open
  // the path.
  const stdio = ['ignore', 'ignore', 'ignore', witness.writeEnd]
  const child = spawnOwned(program('starts-a-tree'), [witness.path, mode], { stdio, graceMs: GRACE_MS })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  return { child, witness }
}

function assertSignalledOnce(witness, mode, when) {
  witness.release()
  assert.ok(witness.isGone(), `${when}: processes exist:\n${witness.holders()}`)
  if (mode !== 'counts') return
  const [births, first, further] = [NEWBORN, CLEANED_UP, TWICE].map((mark) => witness.count(mark))
  assert.deepEqual([first, further], [births, 0], `${when}: [got SIGTERM, got another] of ${births}`)
}

describe('in a tree that is cancelled while its processes start,', posixOnly(NO_SIGNALS, options), () => {
  for (const mode of ['dies', 'counts']) {
    test(`each process gets SIGTERM at once and only once: ${mode}`, options, async (t) => {
      const random = sequence(SEED, mode)
      for (let round = 0; round < 15; round++) {
        const { child, witness } = startTree(t, mode)
        const afterMs = random() * 12
        await instant(afterMs)
        const cancelledAt = performance.now()
        await child.cancel()
        const took = performance.now() - cancelledAt
        const when = `round ${round}, cancelled after ${afterMs.toFixed(2)} ms`
        assert.ok(took < LATE_MS, `${when}: it took ${took.toFixed(0)} ms`)
        assertSignalledOnce(witness, mode, when)
      }
    })
  }
})

test(
  'each process gets SIGTERM once if the keeper is killed while the tree starts',
  linuxOnly(NO_SUBREAPER, options),
  async (t) => {
    const random = sequence(SEED, 'keeper')
    for (let round = 0; round < 6; round++) {
      const { child, witness } = startTree(t, 'counts')
      const afterMs = random() * 12
      await instant(afterMs)
      const keeper = statOf(child.pid).parent
      assert.ok(isHelper(keeper), 'the parent of the root is not a keeper')
      process.kill(keeper, 'SIGKILL')
      const { reason } = await child.wait()
      assert.equal(reason, 'lost')
      assertSignalledOnce(
        witness,
        'counts',
        `round ${round}, its keeper killed after ${afterMs.toFixed(2)} ms`,
      )
    }
  },
)

/** The children of a process, including zombies. */
const childrenOf = (pid) =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean)

test(
  '5,000 processes are counted, get SIGTERM once each, and leave no zombie',
  linuxOnly(NO_SUBREAPER, options),
  async (t) => {
    const count = 5_000
    const witness = openWitness(t)
    const stdio = ['pipe', 'ignore', 'ignore']
    const child = spawnOwned(program('crowd'), [witness.path, `${count}`], { stdio, graceMs: 60_000 })
    t.after(() => child.cancel({ signal: 'SIGKILL' }))
    await witness.ready(count + 1, 60_000)
    const keeper = statOf(child.pid).parent
    assert.equal((await child.usage()).processes, count + 1)
    // The parents of the daemons are dead, so the keeper's children are the daemons and the root.
    assert.equal(childrenOf(keeper).length, 1 + (count * 9) / 10)
    await child.cancel()
    assert.ok(witness.isGone(), `processes exist:\n${witness.holders()}`)
    assert.equal(witness.count(CLEANED_UP), count + 1)
  },
)

test(
  'the exit lists processes that the root leaves, and counts those beyond the limit of the list',
  posixOnly(NO_SIGNALS, options),
  async (t) => {
    const count = 1_200
    const witness = openWitness(t)
    const stdio = ['pipe', 'ignore', 'ignore']
    const child = spawnOwned(program('crowd'), [witness.path, `${count}`], { stdio, graceMs: 60_000 })
    t.after(() => child.cancel({ signal: 'SIGKILL' }))
    await witness.ready(count + 1, 60_000)
    child.stdin.end()
    const { reason, leftovers, escaped, survivors, unlisted } = await child.wait()
    assert.equal(reason, 'ownership-escape')
    assert.deepEqual(
      [leftovers.length, escaped.length, survivors.length, unlisted],
      [1024, 1024, 0, { leftovers: count - 1024, escaped: (count * 9) / 10 - 1024, forced: 0, survivors: 0 }],
    )
  },
)
