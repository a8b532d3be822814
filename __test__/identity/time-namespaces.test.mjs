// A start token uses the clock of the reader's time namespace. A token from another clock cannot be
// compared.
import { spawnSync } from 'node:child_process'
import { captureStartToken } from 'spawn-owned'
import { assertAlive, assertGone, startBot } from '../support/bots.mjs'
import { crashed, owned } from '../support/orphans.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { isLinux, NO_NAMESPACES } from '../support/system.mjs'

/** A command prefix that runs the rest with a boot clock that is a day ahead. */
const AHEAD = ['unshare', '--time', '--boottime', '86400', '--fork', '--kill-child']
const trial = spawnSync(AHEAD[0], [...AHEAD.slice(1), 'true'])
const skip = isLinux
  ? trial.status !== 0 && `needs root and time namespaces: ${String(trial.error ?? trial.stderr).trim()}`
  : NO_NAMESPACES
const options = { timeout: 120_000, skip }

describe('a reaper whose clock is a day ahead', options, () => {
  test('leaves the runs of a living bot alone', options, async (t) => {
    const { bot, next, path, runId, record, witness } = await owned(t)
    const other = await startBot(t, path, { within: AHEAD })
    const { killed, alreadyDead, decisions } = await other.ask('reap')
    assert.deepEqual([killed, alreadyDead], [[], []])
    assert.equal(decisions[0].facts.namespace, 'other')
    assertAlive(witness)
    assert.deepEqual(
      next.list({ runId }).map(({ startToken }) => startToken),
      [record.startToken],
    )
    assert.equal((await bot.ask('cancel', runId)).outcome, 'cancelled')
  })

  test('leaves the runs of a dead bot to a reaper with the right clock', options, async (t) => {
    const { next, path, pid, witness } = await crashed(t)
    const other = await startBot(t, path, { within: AHEAD })
    const { killed, alreadyDead } = await other.ask('reap', { stealFromLive: true })
    assert.deepEqual([killed, alreadyDead], [[], []])
    assertAlive(witness)
    assert.deepEqual((await next.reapOrphans()).killed, [pid])
    assertGone(witness)
  })

  test('owns and ends its own runs, with tokens that name their clock', options, async (t) => {
    const { path } = await owned(t)
    const other = await startBot(t, path, { within: AHEAD })
    const { bot, next, pid, record, runId, witness } = await owned(t, { bot: other, path })
    assert.match(record.startToken, /\+86400\.000000000$/)
    assert.notEqual(captureStartToken(pid), record.startToken)
    assert.equal((await next.reapOrphans()).killed.length, 0)
    assert.equal((await bot.ask('cancel', runId)).outcome, 'cancelled')
    assertGone(witness)
  })
})
