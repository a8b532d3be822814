// A hostile tree ends completely when it is cancelled and when its root process exits, with pipes
// and with a terminal.
// (When the bot is killed: bot-killed.test.mjs. When the keeper is killed: keeper-killed.test.mjs.)
import { cancel, spawnOwned } from 'spawn-owned'
import { hastyWrappers, hostileTrees, missingTrees, treeNamed } from '../support/hostile-trees.mjs'
import {
  assert,
  CLEANED_UP,
  describe,
  FOR_EVER,
  NEWBORN,
  openWitness,
  options,
  program,
  test,
} from '../support/prelude.mjs'
import { instant } from '../support/random.mjs'
import {
  GRACE_FOR_ALL_MS,
  isWindows,
  isWine,
  notUnderWine,
  WINE_CANNOT_ASK,
  WINE_CONNECTS_NO_STREAMS,
  WINE_SERVER_CRASHES,
} from '../support/system.mjs'

const SHORT_GRACE = 250
// Shorter than the time after which the fixtures exit by themselves, so that a hang fails the test.

/**
 * How a command is started. `start` runs a command. `startHolding` also passes it the witness, from
 * its first instruction on if possible: a command with a terminal gets no other file descriptors,
 * so a shell opens the witness first. `hangsUp`: when the session leader dies, the kernel hangs up
 * its terminal, and other processes of the session can die before they handle SIGTERM.
 */
const modes = {
  pipe: {
    hangsUp: false,
    start: (command, args) => spawnOwned(command, args, piped()),
    startHolding: (witness, command, args) => spawnOwned(command, args, piped(witness.writeEnd)),
  },
  pty: {
    hangsUp: true,
    start: (command, args) => spawnOwned(command, args, { pty: true, graceMs: SHORT_GRACE }),
    startHolding: (witness, command, args) =>
      spawnOwned('sh', ['-c', 'exec 3>"$0"; exec "$@"', witness.path, command, ...args], {
        pty: true,
        graceMs: SHORT_GRACE,
      }),
  },
}
const piped = (...handedOn) => ({ stdio: ['pipe', 'ignore', 'ignore', ...handedOn], graceMs: SHORT_GRACE })

/** Starts `tree` and resolves when each of its processes is ready. */
async function standing(t, tree, mode = modes.pipe) {
  const witness = openWitness(t)
  const child = mode.start(...tree.command(witness.path))
  t.after(() => child.stdin.destroy())
  await witness.ready(tree.ready)
  return { child, witness }
}

/**
 * Whether Wine has left a process of a hydra. If Wine ends a parent while it creates a child, the
 * child has no thread yet and cannot be ended. Its handles stay open and the job counts it. Only a
 * hydra creates children all the time. Then the run must report the child as a survivor.
 */
function isLeftByWine(tree, exit) {
  return isWine && tree?.name.startsWith('hydra') && exit.survivors.length === 1
}

function assertExtinct(witness, exit, tree) {
  if (isLeftByWine(tree, exit)) return
  const survivors = JSON.stringify(exit.survivors)
  assert.ok(
    witness.isGone(),
    `resolved although processes exist, survivors ${survivors}:\n${witness.holders()}`,
  )
  assert.deepEqual(exit.survivors, [])
}

/** Trees whose wrapper is a node.exe that waits for the end of its input. */
const needsStreams = (tree, mode) => mode.hangsUp && tree.name === 'npx-like wrapper'

for (const [name, mode] of Object.entries(modes)) {
  describe(`with ${name}, cancel ends`, () => {
    for (const tree of hostileTrees) {
      const how = needsStreams(tree, mode) ? notUnderWine(WINE_CONNECTS_NO_STREAMS, options) : options
      test(tree.name, how, async (t) => {
        const { child, witness } = await standing(t, tree, mode)
        assert.equal(witness.isGone(), false)
        // A tree that dies of SIGTERM gets a grace without end: a cancel that waits for it in full
        // hangs.
        const isPatient = tree.diesOfSigterm && !(isWindows && tree.left > 0)
        const exit = await child.cancel({ graceMs: isPatient ? FOR_EVER : SHORT_GRACE })
        assertExtinct(witness, exit, tree)
        assert.equal(exit.reason, 'manual-cancel')
        assert.equal(exit.runId, child.runId)
        assert.deepEqual(await child.wait(), exit)
      })
    }
  })

  // The tree inherits the witness as a file descriptor here, so a process holds it before it could
  // open the path.
  describe(`with ${name}, cancel during the start ends`, () => {
    const instants = [0, 0.3, 1, 2, 4]
    for (const tree of hostileTrees) {
      test(tree.name, notUnderWine(WINE_SERVER_CRASHES, options), async (t) => {
        for (const afterMs of instants) {
          const witness = openWitness(t)
          const child = mode.startHolding(witness, ...tree.command(witness.path))
          t.after(() => child.stdin.destroy())
          if (afterMs > 0) await instant(afterMs)
          const exit = await child.cancel({ graceMs: 50 })
          witness.release()
          assertExtinct(witness, exit, tree)
          assert.equal(exit.reason, 'manual-cancel', `cancelled after ${afterMs} ms: ${exit.message}`)
        }
      })
    }
  })

  describe(`with ${name}, the exit of the root ends the rest of`, () => {
    for (const tree of hostileTrees) {
      const how = needsStreams(tree, mode) ? notUnderWine(WINE_CONNECTS_NO_STREAMS, options) : options
      test(tree.name, how, async (t) => {
        const { child, witness } = await standing(t, tree, mode)
        if (tree.rootLeaves === 'stdin') child.stdin.end()
        else process.kill(child.pid, tree.rootLeaves)
        const exit = await child.wait()
        assertExtinct(witness, exit, tree)
        assertTruthful(tree, exit)
      })
    }

    for (const wrapper of hastyWrappers) {
      test(`${wrapper.name}, which exits at once`, options, async (t) => {
        const witness = openWitness(t)
        const child = mode.start(...wrapper.command(witness.path))
        t.after(() => child.stdin.destroy())
        const exit = await child.wait()
        witness.release()
        assertExtinct(witness, exit)
        assert.deepEqual([exit.reason, exit.exitCode, exit.escaped], ['exit', 0, []])
      })
    }
  })
}

/** Asserts that the exit reports how the root ended and each process that left the session. */
function assertTruthful(tree, exit) {
  const bySignal = tree.rootLeaves !== 'stdin'
  assert.equal(exit.exitCode, bySignal ? null : 0)
  assert.equal(exit.signal, bySignal ? tree.rootLeaves : null)
  const normalReason = bySignal ? 'signal' : 'exit'
  // Windows has no sessions that a process could leave.
  const left = isWindows ? 0 : tree.left
  assert.equal(exit.reason, left > 0 ? 'ownership-escape' : normalReason)

  const pids = new Set(exit.escaped.map(({ pid }) => pid))
  assert.equal(pids.size, exit.escaped.length, 'each process is listed once')
  if (left === Infinity) assert.ok(pids.size > 0, 'escaped is empty')
  else assert.equal(pids.size, left)
}

for (const [name, mode] of Object.entries(modes)) {
  describe(`with ${name}, graceMs`, () => {
    test(
      'gives processes time to clean up, and ends as soon as they have',
      notUnderWine(WINE_CANNOT_ASK, options),
      async (t) => {
        const tree = { command: (path) => [program('cleans-up-on-sigterm'), [path]], ready: 2 }
        const { child, witness } = await standing(t, tree, mode)
        const exit = await child.cancel({ graceMs: FOR_EVER })
        assertExtinct(witness, exit)
        assert.ok(witness.count(CLEANED_UP) >= (mode.hangsUp ? 1 : 2))
        assert.deepEqual([exit.reason, exit.exitCode, exit.signal], ['manual-cancel', 0, null])
      },
    )

    test(
      'is waited for in full if a process ignores SIGTERM',
      notUnderWine(WINE_CANNOT_ASK, options),
      async (t) => {
        const { child } = await standing(t, treeNamed('ignores-sigterm'), mode)
        const from = performance.now()
        const exit = await child.cancel({ graceMs: 400 })
        const took = performance.now() - from
        assert.ok(took >= 399, `ended after ${took} ms`)
        assert.equal(exit.signal, 'SIGKILL')
      },
    )

    test('is not waited for if the tree has already ended', options, async (t) => {
      const { child } = await standing(t, treeNamed('double-fork-daemon'), mode)
      child.stdin.end()
      const exit = await child.wait()
      assert.deepEqual(
        await child.cancel({ graceMs: FOR_EVER }),
        exit,
        'a later cancel returns the same exit',
      )
      const late = await cancel(child, { graceMs: FOR_EVER })
      assert.equal(late.outcome, 'already-exited')
    })

    test(
      'does not protect children that a SIGTERM handler starts',
      notUnderWine(WINE_CANNOT_ASK, options),
      async (t) => {
        const { child, witness } = await standing(t, treeNamed('forks-on-sigterm'), mode)
        // So long that also on a busy machine each process handles SIGTERM before it is killed.
        const exit = await child.cancel({ graceMs: 3000 })
        assertExtinct(witness, exit)
        if (!mode.hangsUp) assert.ok(witness.count(NEWBORN) >= 4, 'each process has handled SIGTERM')
        assert.deepEqual([exit.reason, exit.exitCode], ['manual-cancel', 0])
      },
    )
  })
}

for (const { name, why } of missingTrees) test(`each end of a run ends ${name}`, { skip: why })

test('cancel by run id has the same result as cancel of the handle', options, async (t) => {
  const { child, witness } = await standing(t, treeNamed('half-setsid'))
  const { outcome, exits } = await cancel(child.runId, { graceMs: GRACE_FOR_ALL_MS })
  assert.equal(outcome, 'cancelled')
  assertExtinct(witness, exits[0])
  assert.deepEqual([exits.length, exits[0]], [1, await child.wait()])
  assert.equal(exits[0].reason, 'manual-cancel')
})

test('two cancels at the same time return the same exit', options, async (t) => {
  const { child, witness } = await standing(t, treeNamed('ignores-sigterm'))
  const [first, second] = await Promise.all([child.cancel({ graceMs: 100 }), child.cancel({ graceMs: 100 })])
  assertExtinct(witness, first)
  assert.deepEqual(second, first)
})
