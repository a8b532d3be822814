// A PID in the registry belongs to another process now. The tests reuse PIDs for real, with
// ns_last_pid in a PID namespace of their own. No bystander is signalled, and no orphan is missed.
// REUSE_ROUNDS=1000 sets the rounds per kind.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { namespace, withoutNamespace } from '../support/namespace.mjs'
import { assert, script } from '../support/prelude.mjs'
import { linuxTests, NO_NAMESPACES } from '../support/system.mjs'

const { describe, test } = linuxTests(NO_NAMESPACES)

const ROUNDS = Number(process.env.REUSE_ROUNDS ?? 5)
// PID 1 of the namespace must reap orphans, otherwise no PID becomes free. A shell does that. The
// second command keeps the shell from replacing itself with the first.
const init = ['sh', '-c', '"$@"; exit $?', 'sh']
const options = { timeout: 30_000 + ROUNDS * 5000, skip: withoutNamespace }

describe('a reused PID leads to no wrong signal and hides no orphan: the PID of the', {
  ...options,
  concurrency: 2,
}, () => {
  for (const kind of ['root', 'group', 'leaderless-group', 'bot', 'keeper']) {
    test(kind, options, async () => {
      const fixture = [process.execPath, script('reuses-pids.mjs'), kind, String(ROUNDS)]
      const [command, ...args] = [...namespace, ...init, ...fixture]
      const { stdout, stderr } = await promisify(execFile)(command, args)
      const { rounds, left, failures } = JSON.parse(stdout)
      assert.deepEqual(failures, [], stderr)
      assert.equal(rounds, ROUNDS)
      console.log(`${rounds} times the PID of a ${kind} was reused, ${left} times with an orphan left`)
    })
  }
})
