// What reapOrphans reports: runs that are already dead, and its whole report.
import { execFileSync } from 'node:child_process'
import {
  assertGone,
  fileHas,
  freshRegistry,
  groupGone,
  killGroup,
  neverWaitedFor,
  startBot,
  stateOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { assertReport, crashed, owned } from '../support/orphans.mjs'
import { assert, describe, openWitness, options, program, test, together } from '../support/prelude.mjs'
import { isWindows, NO_KEEPER, NO_SESSIONS, NO_ZOMBIES, posixOnly } from '../support/system.mjs'

describe('reapOrphans reports as already dead', together, () => {
  test('a zombie', posixOnly(NO_ZOMBIES, options), async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const pid = await neverWaitedFor(t, program('stays'), witness.path)
    await witness.ready(1)
    await bot.ask('register', { pid })
    await bot.kill()
    process.kill(pid, 'SIGKILL')
    await witness.gone(20_000)
    // The kernel closes its file descriptors a moment before it becomes a zombie.
    await until(() => stateOf(pid) === 'Z', 'it is a zombie')
    assertReport(await supervise(path).reapOrphans(), { alreadyDead: [pid] })
    await fileHas(path, 0)
  })

  test('a run that is gone before the check', options, async (t) => {
    const alone = { ready: 1, command: (path) => [program('stays'), [path]] }
    const tree = isWindows ? alone : treeNamed('ignores-sigterm')
    const { next, path, pid, witness } = await crashed(t, { tree })
    killGroup(pid)
    await witness.gone(20_000)
    await groupGone(pid)
    const report = await next.reapOrphans()
    assertReport(report, { alreadyDead: [pid] })
    assert.equal(report.decisions[0].facts.reason, 'already-gone')
    await fileHas(path, 0)
  })

  test('a run that ends between the check and the signal', posixOnly(NO_SESSIONS, options), async (t) => {
    const { next, pid, witness } = await crashed(t, { tree: treeNamed('ignores-sigterm') })
    const killedByPolicy = () => {
      process.kill(-pid, 'SIGKILL')
      // The whole group, not only its leader, must be gone before the policy returns.
      execFileSync('sh', ['-c', 'while kill -s 0 -- "-$1" 2>/dev/null; do :; done', 'sh', String(pid)])
      return 'terminate'
    }
    const report = await next.reapOrphans({ policy: killedByPolicy })
    assertGone(witness)
    assertReport(report, { alreadyDead: [pid] })
  })
})

describe('the report of reapOrphans', together, () => {
  test(
    'has one decision with its facts for each record, and listeners get the same',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const path = freshRegistry()
      const orphan = await crashed(t, { path, sessionId: 's', labels: { agent: 'claude' } })
      const alive = await owned(t, { path })
      const next = supervise(path)
      const report = await next.reapOrphans()
      assert.deepEqual(Object.keys(report).toSorted(), [
        'adopted',
        'alreadyDead',
        'decisions',
        'ended',
        'failed',
        'killed',
        'skipped',
      ])
      const [ended, left] = report.decisions
      assert.equal(report.decisions.length, 2)
      const { facts, record, reason, ...rest } = ended
      assert.deepEqual(rest, {
        runId: orphan.runId,
        pid: orphan.pid,
        decision: 'end',
        outcome: 'ended',
        dryRun: false,
        byPolicy: false,
      })
      assert.match(reason, /recorded process is alive/)
      assert.deepEqual(facts, {
        owner: 'dead',
        lease: 'valid',
        boot: 'same',
        namespace: 'same',
        root: 'alive',
        group: 'ours',
        keeper: 'dead',
        carriers: 'true',
        state: 'running',
        reason: 'root-alive',
      })
      assert.deepEqual([record.sessionId, record.labels.agent], ['s', 'claude'])
      assert.deepEqual([left.pid, left.decision, left.outcome], [alive.pid, 'leave', 'left'])
      assert.deepEqual(
        next.events,
        report.decisions.map((decision) => ({ type: 'reap-decision', ...decision })),
      )
    },
  )

  test('is empty for an empty registry', options, async () => {
    const next = supervise(freshRegistry())
    const empty = {
      killed: [],
      alreadyDead: [],
      skipped: [],
      failed: [],
      ended: [],
      adopted: [],
      decisions: [],
    }
    assert.deepEqual(await next.reapOrphans(), empty)
    assert.equal(next.reconcileOrphans, next.reapOrphans)
    assert.deepEqual(next.events, [])
  })
})
