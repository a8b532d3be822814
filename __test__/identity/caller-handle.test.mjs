// A caller can hold an old ChildProcess or remember an old PID. They never mean the process that
// has the PID now.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { captureStartToken } from 'spawn-owned'
import { assertAlive, assertGone, freshRegistry, supervise, until } from '../support/bots.mjs'
import { namespace, withoutNamespace } from '../support/namespace.mjs'
import { assert, describe, openWitness, program, script, test } from '../support/prelude.mjs'
import { linuxTests, NO_NAMESPACES, NO_SESSIONS, posixOnly } from '../support/system.mjs'

// PID 1 of the namespace must reap orphans, or no PID becomes free. A shell does. The second
// command keeps the shell from executing the first one in its place.
const init = ['sh', '-c', '"$@"; exit $?', 'sh']
const options = { timeout: 60_000 }
const ROUNDS = 4

async function child(t, name = 'stays', processes = 1) {
  const witness = openWitness(t)
  const started = spawn(program(name), [witness.path], { stdio: 'ignore', detached: true })
  t.after(() => started.kill('SIGKILL'))
  await witness.ready(processes)
  return { child: started, pid: started.pid, witness }
}

linuxTests(NO_NAMESPACES).test(
  'a process that reuses the PID of an exited ChildProcess is not signalled',
  { ...options, skip: withoutNamespace },
  async () => {
    const fixture = [process.execPath, script('holds-a-handle.mjs'), String(ROUNDS)]
    const [command, ...args] = [...namespace, ...init, ...fixture]
    const { stdout, stderr } = await promisify(execFile)(command, args)
    const { rounds, failures } = JSON.parse(stdout)
    assert.deepEqual([rounds, failures], [ROUNDS, []], stderr)
  },
)

describe('a ChildProcess as a target', { timeout: 120_000 }, () => {
  test('finds the entry of its process while the process lives', options, async (t) => {
    const here = supervise(freshRegistry())
    const it = await child(t)
    here.registerProcess({ pid: it.pid })
    assert.equal(here.unregisterProcess(it.child), true)
    assertAlive(it.witness)
    here.registerProcess({ pid: it.pid })
    assert.equal((await here.cancel(it.child, { graceMs: 1000 })).outcome, 'cancelled')
    assertGone(it.witness)
    // The identity was saved by the first cancel, so the exited process is still found.
    assert.equal((await here.cancel(it.child)).outcome, 'cancelled')
  })

  test('that was never registered is not found, and its process lives on', options, async (t) => {
    const here = supervise(freshRegistry())
    const it = await child(t)
    assert.deepEqual(await here.cancel(it.child), { outcome: 'not-found', exits: [] })
    assert.equal(here.unregisterProcess(it.child), false)
    assertAlive(it.witness)
  })

  test('that could not be started is not found', options, async () => {
    const failed = spawn('/nonexistent/program')
    await once(failed, 'error')
    const here = supervise(freshRegistry())
    assert.equal((await here.cancel(failed)).outcome, 'not-found')
    assert.equal(here.unregisterProcess(failed), false)
  })

  test(
    'that has exited still finds its group if it was passed to registerProcess',
    posixOnly(NO_SESSIONS, options),
    async (t) => {
      const here = supervise(freshRegistry())
      const it = await child(t, 'ignores-sigterm', 2)
      const { runId } = here.registerProcess({ pid: it.pid, process: it.child, graceMs: 100 })
      // From here on the recorded member proves the group.
      await until(() => here.list()[0].members?.length === 1, 'the member is recorded')
      const exited = once(it.child, 'exit')
      it.child.kill('SIGKILL')
      await exited
      assert.equal(it.witness.isGone(), false, 'a member of its group is left')
      const { outcome, exits } = await here.cancel(it.child)
      assertGone(it.witness)
      assert.deepEqual([outcome, exits.map((exit) => exit.runId)], ['cancelled', [runId]])
    },
  )

  test('must match the PID of the entry that it is registered with', options, async (t) => {
    const here = supervise(freshRegistry())
    const [one, other] = [await child(t), await child(t)]
    assert.throws(() => here.registerProcess({ pid: one.pid, process: other.child }), {
      code: 'ERR_INVALID_ARG_VALUE',
    })
    assert.throws(() => here.registerProcess({ pid: one.pid, process: {} }), { code: 'ERR_INVALID_ARG_TYPE' })
    assert.throws(() => here.registerProcess({ pid: one.pid, startToken: captureStartToken(other.pid) }), {
      code: 'ERR_OWNED_NO_SUCH_PROCESS',
    })
    const token = captureStartToken(one.pid)
    assert.equal(here.registerProcess({ pid: one.pid, startToken: token }).startToken, token)
    await here.cancel(one.child, { graceMs: 0 })
  })
})
