// A registry that was tampered with: whatever it says, only proven members of a run are signalled.
import { writeFileSync } from 'node:fs'
import { captureStartToken } from 'spawn-owned'
import {
  altered,
  assertAlive,
  assertGone,
  bystander,
  fileHas,
  fill,
  freshRegistry,
  keeperOf,
  past,
  startBot,
  stateOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { assertReport, crashed, mistaken, owned } from '../support/orphans.mjs'
import { assert, describe, options, test } from '../support/prelude.mjs'
import { journalLine } from '../support/registry.mjs'
import { NO_KEEPER, NO_SESSIONS, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 6 }

/** An address on which no process listens. */
const UNUSED_ADDRESS = 'spawn-owned-test-nowhere'

describe(
  'a process that an entry wrongly names as its keeper is not signalled when the run is',
  posixOnly(NO_KEEPER, together),
  () => {
    /** Creates a crashed run for each of these PIDs, and a registry that names them as keepers. */
    async function keptBy(t, path, keepers) {
      const runs = []
      for (const { pid, address = UNUSED_ADDRESS } of keepers) {
        const run = await crashed(t)
        const keeper = { startToken: captureStartToken(pid), address }
        assert.ok(keeper.startToken)
        runs.push({ ...run, record: { ...run.record, keeper } })
      }
      fill(
        path,
        runs.map(({ record }) => record),
      )
      return runs
    }

    // The root processes are proven without a keeper, so the runs are orphans.
    const ways = {
      reaped: async (bot, runs) => {
        const { killed, ...report } = await bot.ask('reap')
        assertReport(
          { ...report, killed: killed.toSorted() },
          { killed: runs.map(({ pid }) => pid).toSorted() },
        )
      },
      cancelled: async (bot, runs) => {
        for (const { outcome } of await Promise.all(runs.map(({ runId }) => bot.ask('cancel', runId))))
          assert.equal(outcome, 'cancelled')
      },
    }

    for (const [way, end] of Object.entries(ways)) {
      test(`${way}: a bystander, which is not even woken`, options, async (t) => {
        const path = freshRegistry()
        const bot = await startBot(t, path)
        const otherProcess = await bystander(t)
        process.kill(otherProcess.pid, 'SIGSTOP')
        await until(() => stateOf(otherProcess.pid) === 'T', 'the process has stopped')
        const runs = await keptBy(t, path, [otherProcess])
        await end(bot, runs)
        assertGone(runs[0].witness)
        assertAlive(otherProcess.witness)
        assert.equal(stateOf(otherProcess.pid), 'T', 'the process is still stopped')
      })

      test(`${way}: the keeper of another run, whether or not its address is right`, options, async (t) => {
        const path = freshRegistry()
        const bot = await startBot(t, path)
        const other = await owned(t)
        const pid = keeperOf(other.record)
        const runs = await keptBy(t, path, [{ pid }, { pid, address: other.record.keeper.address }])
        await end(bot, runs)
        for (const { witness } of runs) assertGone(witness)
        assertAlive(other.witness)
        assert.equal(await other.bot.ask('state', other.runId), 'running')
        const { exits } = await other.next.cancel(other.runId)
        assert.equal(exits[0].reason, 'manual-cancel', 'the keeper still works')
        assertGone(other.witness)
      })

      test(`${way}: a bot, even the one that ends the run`, options, async (t) => {
        const path = freshRegistry()
        const [bot, another] = [await startBot(t, path), await startBot(t, path)]
        const runs = await keptBy(t, path, [bot, another])
        await end(bot, runs)
        for (const { witness } of runs) assertGone(witness)
        for (const it of [bot, another]) assert.deepEqual(await it.ask('list'), [])
      })
    }
  },
)

describe('an entry is refused as a whole', together, () => {
  const parts = {
    'as its keeper': (token) => ({ keeper: { startToken: token, address: UNUSED_ADDRESS } }),
    'as a member': (token) => ({ containment: 'group', keeper: undefined, members: [token] }),
  }
  for (const [as, part] of Object.entries(parts)) {
    // On Windows the bot is the keeper.
    const how = posixOnly(as === 'as its keeper' && NO_KEEPER, options)
    test(`if it names its own bot ${as}, and the other entries count`, how, async (t) => {
      const { bot, record, witness } = await owned(t)
      const valid = await crashed(t)
      // The lease has expired, so a reaper with stealFromLive may take the run.
      const wrong = { ...record, ...part(record.botStartToken), leaseExpiresAtMs: Date.now() - 60_000 }
      const path = freshRegistry([wrong, valid.record])
      const next = supervise(path)
      assertReport(await next.reapOrphans({ stealFromLive: true }), { killed: [valid.pid] })
      assert.deepEqual(await next.cancel(record.runId), { outcome: 'not-found', exits: [] })
      assertGone(valid.witness)
      assertAlive(witness)
      assert.equal(await bot.ask('state', record.runId), 'running')
      await until(() => next.events.some(({ kind }) => kind === 'corrupt'), 'an event reports the entry')
    })
  }
})

test(
  'a member that an entry names is not signalled if it is not in the group',
  posixOnly(NO_SESSIONS, options),
  async (t) => {
    const otherProcess = await bystander(t)
    const members = [captureStartToken(otherProcess.pid)]
    const { next, pid, witness } = await mistaken(t, ({ startToken }) => ({
      startToken: past(startToken),
      members,
    }))
    assertReport(await next.reapOrphans(), { skipped: [pid] })
    assertAlive(witness)
    assertAlive(otherProcess.witness)
  },
)

describe('a journal line whose PID differs from its start token is ignored:', together, () => {
  /**
   * Creates two bystanders, and an orphan with a journal that contains a line about both of them.
   */
  async function journalled(t, lineOf) {
    const [one, two] = [await bystander(t), await bystander(t)]
    const orphan = await crashed(t)
    const { keeper: _, ...record } = orphan.record
    const entry = {
      ...record,
      runId: 'wrong',
      containment: 'group',
      pid: one.pid,
      pgid: one.pid,
      startToken: captureStartToken(two.pid),
    }
    const path = freshRegistry([orphan.record])
    const lines = lineOf(entry, orphan.record).map(journalLine)
    writeFileSync(`${path}.journal`, lines.join(''), { mode: 0o600 })
    return { next: supervise(path), one, two, orphan, path }
  }

  const lines = {
    'a start': (entry) => [{ intent: { entry } }],
    'a start with the wrong PID of its bot': (entry) => [
      { intent: { entry: { ...entry, pid: Number(entry.startToken.split(':')[0]), botPid: 1 } } },
    ],
    // The line replaces the orphan's entry, as if its owner had returned it.
    'a return': (entry, orphan) => [
      { returned: { entry: { ...entry, startToken: orphan.startToken }, by: orphan.ownerInstanceId } },
    ],
  }
  for (const [what, lineOf] of Object.entries(lines)) {
    test(what, options, async (t) => {
      const { next, one, two, orphan, path } = await journalled(t, lineOf)
      assert.deepEqual(
        next.list().map(({ runId }) => runId),
        [orphan.runId],
      )
      assert.deepEqual(await next.cancel('wrong'), { outcome: 'not-found', exits: [] })
      const report = await next.reapOrphans()
      assertReport(report, { killed: [orphan.pid] })
      assert.equal(report.decisions.length, 1)
      assertGone(orphan.witness)
      for (const { witness } of [one, two]) assertAlive(witness)
      await fileHas(path, 0)
    })
  }

  test('but a line whose PID matches counts', options, async (t) => {
    const right = ({ startToken, ...entry }) => ({ ...entry, startToken: altered(startToken, entry) })
    const { next, orphan } = await journalled(t, (entry) => [{ intent: { entry: right(entry) } }])
    assert.deepEqual(
      next
        .list()
        .map(({ runId }) => runId)
        .toSorted(),
      ['wrong', orphan.runId].toSorted(),
    )
    await next.reapOrphans()
  })
})
