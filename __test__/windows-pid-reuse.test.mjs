// A number that the registry names belongs to somebody else by now, for real, on Windows: numbers are used up until it comes round. No
// bystander is touched, and no true orphan is missed. (Elsewhere: reap-pid-reuse.test.mjs.)
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, test } from 'node:test'
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
} from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { assertReport, crashed } from './support/orphans.mjs'
import { windowsOnly } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = windowsOnly({ timeout: 200_000 })
/** Thousands of numbers may lie before it. */
const COMES_ROUND_MS = 120_000

/** Somebody with the number of whoever this token names, which is dead. */
async function strangerWithNumberOf(t, token) {
  const pid = Number(token.split(':')[0])
  await gone(pid)
  const witness = openWitness(t)
  const taker = spawn(program('takes-number'), [witness.path, String(pid)], { stdio: 'ignore' })
  const ended = once(taker, 'exit')
  await witness.ready(1, COMES_ROUND_MS)
  await ended
  const itsToken = captureStartToken(pid)
  assert.ok(itsToken, 'nobody has the number')
  assert.notEqual(itsToken, token)
  return witness
}

/** A kept run of a dead bot whose root has left, and whose daemon has not, and is on record. */
async function withoutRoot(t) {
  const path = freshRegistry()
  const bot = await startBot(t, path)
  const witness = openWitness(t)
  const wish = { onOwnerExit: 'keep', onLeaderExit: 'keep' }
  const { runId, pid } = await bot.ask('spawn', program('wrapper-leaves'), [witness.path], wish)
  await witness.ready(2)
  const next = supervise(path)
  const record = await until(
    () => next.list({ runId }).find(({ members }) => members?.length > 0),
    'its daemon is on record',
  )
  await bot.kill()
  assertAlive(witness)
  return { next, path, pid, record, witness }
}

describe('a reused number hits nobody, and hides nobody:', options, () => {
  test('that of a root, and nothing else is left', options, async (t) => {
    const { next, path, pid, record, witness } = await crashed(t)
    process.kill(pid, 'SIGKILL')
    // The last handle of its job was the root's.
    await witness.gone(20_000)
    const stranger = await strangerWithNumberOf(t, record.startToken)
    const report = await next.reapOrphans()
    assertReport(report, { skipped: [pid] })
    assert.equal(report.decisions[0].decision, 'drop-reused')
    assertAlive(stranger)
    await fileHas(path, 0)
  })

  test('that of a root, and a daemon of its run is left', options, async (t) => {
    const { next, path, pid, record, witness } = await withoutRoot(t)
    const stranger = await strangerWithNumberOf(t, record.startToken)
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
    assertAlive(stranger)
    await fileHas(path, 0)
  })

  test('that of a bot', options, async (t) => {
    const { next, path, pid, record, witness } = await crashed(t)
    const stranger = await strangerWithNumberOf(t, record.botStartToken)
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
    assertAlive(stranger)
    await fileHas(path, 0)
  })
})
