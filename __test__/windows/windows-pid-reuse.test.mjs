// A PID in the registry belongs to another process now, on Windows. The tests start processes until
// the PID is reused for real. No bystander is ended, and no orphan is missed.
// (reap-pid-reuse.test.mjs does the same on Linux.)
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { captureStartToken } from 'spawn-owned'
import {
  assertAlive,
  assertGone,
  fileHas,
  freshRegistry,
  gone,
  startBot,
  supervise,
  until,
} from '../support/bots.mjs'
import { assertReport, crashed } from '../support/orphans.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { windowsOnly } from '../support/system.mjs'

const options = windowsOnly({ timeout: 200_000 })
/** Thousands of PIDs may come before it. */
const COMES_ROUND_MS = 120_000

/** Starts a process that gets the PID of the dead process that this token names. */
async function strangerWithPidOf(t, token) {
  const pid = Number(token.split(':')[0])
  await gone(pid)
  const witness = openWitness(t)
  const taker = spawn(program('takes-pid'), [witness.path, String(pid)], { stdio: 'ignore' })
  const ended = once(taker, 'exit')
  await witness.ready(1, COMES_ROUND_MS)
  await ended
  const itsToken = captureStartToken(pid)
  assert.ok(itsToken, 'no process has the PID')
  assert.notEqual(itsToken, token)
  return witness
}

/** A kept run of a dead bot. Its root has exited; its daemon is alive and recorded. */
async function withoutRoot(t) {
  const path = freshRegistry()
  const bot = await startBot(t, path)
  const witness = openWitness(t)
  const keep = { onOwnerExit: 'keep', onLeaderExit: 'keep' }
  const { runId, pid } = await bot.ask('spawn', program('wrapper-leaves'), [witness.path], keep)
  await witness.ready(2)
  const next = supervise(path)
  const record = await until(
    () => next.list({ runId }).find(({ members }) => members?.length > 0),
    'its daemon is recorded',
  )
  await bot.kill()
  assertAlive(witness)
  return { next, path, pid, record, witness }
}

describe('a reused PID leads to no wrong signal and hides no orphan: the PID of', options, () => {
  test('a root process whose run has no other process left', options, async (t) => {
    const { next, path, pid, record, witness } = await crashed(t)
    process.kill(pid, 'SIGKILL')
    // The root had the last handle of its job, so the kernel ends the rest.
    await witness.gone(20_000)
    const stranger = await strangerWithPidOf(t, record.startToken)
    const report = await next.reapOrphans()
    assertReport(report, { skipped: [pid] })
    assert.equal(report.decisions[0].decision, 'drop-reused')
    assertAlive(stranger)
    await fileHas(path, 0)
  })

  test('a root process whose run still has a daemon', options, async (t) => {
    const { next, path, pid, record, witness } = await withoutRoot(t)
    const stranger = await strangerWithPidOf(t, record.startToken)
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
    assertAlive(stranger)
    await fileHas(path, 0)
  })

  test('a bot', options, async (t) => {
    const { next, path, pid, record, witness } = await crashed(t)
    const stranger = await strangerWithPidOf(t, record.botStartToken)
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
    assertAlive(stranger)
    await fileHas(path, 0)
  })
})
