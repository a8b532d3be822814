// An exiting process loses its environment before its file descriptors. It exists until it has lost
// both, and so does its run.
import { assertGone, gone } from '../support/bots.mjs'
import { crashed } from '../support/orphans.mjs'
import { assert, describe, options, program, test } from '../support/prelude.mjs'
import { linuxOnly, NO_PROC, rootOnly } from '../support/system.mjs'

/**
 * The PID of the fixture's daemon. A process whose main thread has exited shows no arguments, but
 * its threads still show their file descriptors.
 */
function daemonOf(witness, root) {
  const holders = [...witness.holders().matchAll(/pid (\d+)/g)].map(([, pid]) => Number(pid))
  const [daemon, ...others] = holders.filter((pid) => pid !== root)
  assert.deepEqual([others, daemon > 0], [[], true])
  return daemon
}

describe(
  'reapOrphans does not report a run as ended while its last process is exiting:',
  linuxOnly(NO_PROC, options),
  () => {
    const FILES = 'to read the open files of a process without a main thread'
    for (const [what, more, inAddition] of [
      ['a process with several threads', [], options],
      ['a process whose main thread exits first', ['main-thread-first'], rootOnly(FILES, options)],
    ])
      test(what, inAddition, async (t) => {
        for (let round = 0; round < 3; round++) {
          const tree = { ready: 2, command: (path) => [program('dies-slowly'), [path, ...more]] }
          const { next, pid, witness } = await crashed(t, { tree })
          const daemon = daemonOf(witness, pid)
          process.kill(pid, 'SIGKILL')
          await gone(pid)
          // From here on nothing proves that the daemon is a member, and it takes a while to exit.
          process.kill(daemon, 'SIGKILL')
          const { killed, alreadyDead, failed } = await next.reapOrphans()
          assertGone(witness)
          assert.deepEqual([[...killed, ...alreadyDead], failed], [[pid], []])
        }
      })
  },
)
