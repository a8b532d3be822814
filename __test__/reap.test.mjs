// The next bot and what earlier ones have left: what is ended, what is dropped, and what is left alone.
// The judge of life and death is the witness; the registry is what real bots have written, altered where a test says so.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { captureStartToken } from 'spawn-owned'
import {
  altered,
  assertAlive,
  assertGone,
  bystander,
  entriesOf,
  fileHas,
  freshRegistry,
  gone,
  groupGone,
  keeperOf,
  killGroup,
  neverWaitedFor,
  past,
  startBot,
  stateOf,
  statOf,
  stopKeeper,
  supervise,
  until,
} from './support/bots.mjs'
import { program, script } from './support/fixtures.mjs'
import { elusiveTree, treeNamed, treeOptions } from './support/hostile-trees.mjs'
import { assertReport, crashed, crashedAs, kept, mistaken, owned } from './support/orphans.mjs'
import {
  forScripts,
  isWindows,
  linuxOnly,
  NO_KEEPER,
  NO_NAMESPACES,
  NO_SESSIONS,
  NO_STOPPING,
  NO_ZOMBIES,
  NOT_FROM_OUTSIDE,
  posixOnly,
} from './support/system.mjs'
import { CLEANED_UP, openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 4 }

describe('its bot is dead:', together, () => {
  test('ended, when nobody else was left to do it', options, async (t) => {
    const { next, path, pid, witness } = await crashed(t)
    const report = await next.reapOrphans(process.pid)
    assertGone(witness)
    assertReport(report, { killed: [pid] })
    await fileHas(path, 0)
    assertReport(await next.reapOrphans(), {})
  })

  test('already dead, when its keeper has seen to it', posixOnly(NO_KEEPER, options), async (t) => {
    const { bot, next, path, pid, record, witness } = await owned(t)
    await bot.kill()
    await witness.gone(20_000)
    await gone(keeperOf(record))
    const report = await next.reapOrphans()
    assertReport(report, { alreadyDead: [pid] })
    assert.equal(report.decisions[0].facts.reason, 'end-recorded')
    assert.equal(report.decisions[0].record.exit.ending, 'owner-exit')
    await fileHas(path, 0)
  })

  test('ended, when its keeper is just about to', options, async (t) => {
    const { bot, next, path, pid, record, witness } = await owned(t, { tree: treeNamed('ignores-sigterm') })
    await bot.kill()
    const { killed, alreadyDead } = await next.reapOrphans()
    assertGone(witness)
    assert.deepEqual([...killed, ...alreadyDead], [pid])
    // What the keeper has to say comes too late to bring it back.
    await gone(keeperOf(record))
    await fileHas(path, 0)
    assertReport(await next.reapOrphans(), {})
  })

  test('ended with it are a bot that was its run, and the runs of that', options, async (t) => {
    const nested = [script('nested-bot.mjs'), elusiveTree().command('')[0]]
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() }
    const tree = { ready: 2, command: (path) => [process.execPath, [...forScripts, ...nested, path]] }
    const { next, pid, witness } = await crashed(t, { tree, env })
    assertReport(await next.reapOrphans(), { killed: [pid] })
    // The inner keeper has heard of the inner bot's end.
    await witness.gone(20_000)
  })

  test('SIGTERM comes first, and the grace is granted', posixOnly(NOT_FROM_OUTSIDE, options), async (t) => {
    const tree = { ready: 2, command: (path) => [program('cleans-up-on-sigterm'), [path]] }
    const { next, pid, witness } = await crashed(t, { tree, graceMs: 10_000 })
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
    assert.equal(witness.count(CLEANED_UP), 2)
  })

  test('SIGKILL follows after the grace that was asked for', options, async (t) => {
    const { next, pid, witness } = await crashed(t, { tree: treeNamed('ignores-sigterm'), graceMs: 60_000 })
    assertReport(await next.reapOrphans({ graceMs: 50 }), { killed: [pid] })
    assertGone(witness)
  })

  test('its lease is void at once, however long it was', options, async (t) => {
    const { next, pid, record } = await crashed(t)
    assert.ok(record.leaseExpiresAtMs > Date.now() + 10_000)
    assertReport(await next.reapOrphans(), { killed: [pid] })
  })

  test('several runs of several bots, in one call', options, async (t) => {
    const path = freshRegistry()
    const runs = []
    for (let i = 0; i < 3; i++) runs.push(await crashed(t, { path }))
    const { killed } = await supervise(path).reapOrphans()
    assert.deepEqual(killed.toSorted(), runs.map(({ pid }) => pid).toSorted())
    for (const { witness } of runs) assertGone(witness)
  })
})

describe('its bot is alive:', together, () => {
  test('untouched, and in no list', options, async (t) => {
    const { next, pid, witness, bot, runId } = await owned(t)
    const report = await next.reapOrphans()
    assertReport(report, {})
    assert.equal(report.decisions[0].decision, 'leave')
    assert.equal(report.decisions[0].facts.reason, 'owner-alive')
    assertAlive(witness)
    assert.equal(await bot.ask('state', runId), 'running')
    assert.deepEqual(
      next.list().map((record) => record.pid),
      [pid],
    )
  })

  test('untouched, even if its lease has expired', options, async (t) => {
    const { record, witness } = await owned(t)
    const next = supervise(freshRegistry([{ ...record, leaseExpiresAtMs: Date.now() - 60_000 }]))
    const report = await next.reapOrphans()
    assertReport(report, {})
    assert.equal(report.decisions[0].facts.reason, 'lease-expired-owner-alive')
    assertAlive(witness)
  })

  test('untouched, if it is this very bot', options, async (t) => {
    const next = supervise(freshRegistry())
    const witness = openWitness(t)
    const run = next.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
    await witness.ready(1)
    const report = await next.reapOrphans(process.pid)
    assertReport(report, {})
    assert.equal(report.decisions[0].facts.reason, 'own-run')
    assertAlive(witness)
    await run.cancel()
  })

  test('untouched, if it is the bot that is named', options, async (t) => {
    const { bot, next, witness } = await owned(t)
    const report = await next.reapOrphans(bot.pid)
    assertReport(report, {})
    assert.equal(report.decisions[0].facts.reason, 'own-run')
    assertAlive(witness)
  })

  test('and another one is dead: only what that one has left is ended', options, async (t) => {
    const path = freshRegistry()
    const dead = await crashed(t, { path })
    const alive = await owned(t, { path })
    assertReport(await alive.next.reapOrphans(), { killed: [dead.pid] })
    assertGone(dead.witness)
    assertAlive(alive.witness)
    await fileHas(path, 1)
  })
})

test(
  'a bot with the PID of the one before (a container) reaps what that one has left',
  options,
  async (t) => {
    const mine = captureStartToken(process.pid)
    const earlier = { botPid: process.pid, botStartToken: past(mine) }
    const { next, pid, witness } = await crashedAs(t, () => earlier)
    assertReport(await next.reapOrphans(process.pid), { killed: [pid] })
    assertGone(witness)
  },
)

describe('it was started elsewhere:', together, () => {
  test('in another boot: dropped, and whoever has its number now is left alone', options, async (t) => {
    const boot = { boot: '00000000-0000-4000-8000-000000000000' }
    const { next, path, pid, witness } = await mistaken(t, ({ startToken, botStartToken }) => ({
      startToken: altered(startToken, boot),
      botStartToken: altered(botStartToken, boot),
    }))
    const report = await next.reapOrphans()
    assertReport(report, { alreadyDead: [pid] })
    assert.equal(report.decisions[0].facts.reason, 'other-boot')
    assertAlive(witness)
    await fileHas(path, 0)
  })

  test(
    'in another PID namespace: skipped, and its entry stays',
    linuxOnly(NO_NAMESPACES, options),
    async (t) => {
      const { next, path, pid, witness } = await mistaken(t, ({ startToken }) => ({
        startToken: altered(startToken, { ns: 4 }),
      }))
      const report = await next.reapOrphans()
      assertReport(report, { skipped: [pid] })
      assert.match(report.skipped[0].reason, /namespace/)
      assertAlive(witness)
      assert.equal(entriesOf(path).length, 1)
    },
  )

  test(
    'by a bot in another PID namespace: alive as long as its lease says so',
    linuxOnly(NO_NAMESPACES, options),
    async (t) => {
      const elsewhere = ({ startToken, botStartToken }) => ({
        startToken: altered(startToken, { ns: 4 }),
        botStartToken: altered(botStartToken, { ns: 4 }),
      })
      const { next, path, pid, record, witness } = await mistaken(t, elsewhere)
      assertReport(await next.reapOrphans(), {})
      const late = supervise(freshRegistry([{ ...record, leaseExpiresAtMs: Date.now() - 1 }]))
      assertReport(await late.reapOrphans(), { skipped: [pid] })
      assertAlive(witness)
      assert.equal(entriesOf(path).length, 1)
    },
  )
})

describe('its keeper', together, () => {
  for (const tree of ['cleared-environment', 'half-setsid', 'hydra', 'stopped'].map(treeNamed)) {
    test(`lives: asked, and ended is all of ${tree.name}`, treeOptions(tree, options), async (t) => {
      const { next, path, pid, record, witness } = await kept(t, { tree })
      const report = await next.reapOrphans()
      assertGone(witness)
      assertReport(report, { killed: [pid] })
      if (!isWindows) assert.equal(report.decisions[0].facts.keeper, 'alive')
      await gone(keeperOf(record))
      await fileHas(path, 0)
    })
  }

  test('is stopped: woken, asked, and all of it is ended', posixOnly(NO_KEEPER, options), async (t) => {
    const { next, pid, record, witness } = await kept(t, { tree: elusiveTree() })
    await stopKeeper(t, record)
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
  })

  for (const tree of ['half-setsid', 'double-fork-daemon', 'ignores-sigterm', 'stopped'].map(treeNamed)) {
    test(`is dead: ended from outside is ${tree.name}`, posixOnly(tree.posix, options), async (t) => {
      const { next, pid, witness } = await crashed(t, { tree })
      const report = await next.reapOrphans()
      assertGone(witness)
      assertReport(report, { killed: [pid] })
      if (!isWindows) assert.equal(report.decisions[0].facts.keeper, 'dead')
    })
  }

  test('is dead, and bystanders with a cookie like ours live on', options, async (t) => {
    const runId = 'the-run'
    const cookies = ['the-run2', 'a-the-run', 'x:the-ru', 'other']
    const others = []
    for (const cookie of cookies) others.push(await bystander(t, { env: { SPAWN_OWNED_RUN: cookie } }))
    const { next, pid, witness } = await crashed(t, { runId })
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
    for (const other of others) assertAlive(other.witness)
  })
})

describe('what is dead already', together, () => {
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
    // Its descriptors are closed a moment before it is one.
    await until(() => stateOf(pid) === 'Z', 'it is a zombie')
    assertReport(await supervise(path).reapOrphans(), { alreadyDead: [pid] })
    await fileHas(path, 0)
  })

  test('gone when it was looked at', options, async (t) => {
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

  test(
    'gone between the look and the deed: a success all the same',
    posixOnly(NO_SESSIONS, options),
    async (t) => {
      const { next, pid, witness } = await crashed(t, { tree: treeNamed('ignores-sigterm') })
      const killedByPolicy = () => {
        process.kill(-pid, 'SIGKILL')
        // All of the group, and not only its leader, must be gone when the deed begins.
        execFileSync('sh', ['-c', 'while kill -s 0 -- "-$1" 2>/dev/null; do :; done', 'sh', String(pid)])
        return 'terminate'
      }
      const report = await next.reapOrphans({ policy: killedByPolicy })
      assertGone(witness)
      assertReport(report, { alreadyDead: [pid] })
    },
  )
})

describe('the report', together, () => {
  test(
    'has one decision for each record, with the facts behind it, and tells listeners the same',
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

  test('of nothing is empty', options, async () => {
    const next = supervise(freshRegistry())
    const empty = { killed: [], alreadyDead: [], skipped: [], failed: [], adopted: [], decisions: [] }
    assert.deepEqual(await next.reapOrphans(), empty)
    assert.equal(next.reconcileOrphans, next.reapOrphans)
    assert.deepEqual(next.events, [])
  })
})

test(
  "a chat bot's boot: reapOrphans(process.pid) on the file in data/, then a turn",
  posixOnly(NO_STOPPING, options),
  async (t) => {
    const folder = dirname(dirname(freshRegistry()))
    const witness = openWitness(t)
    const first = await boot(t, folder, witness)
    assert.deepEqual([first.report.killed, first.report.alreadyDead, first.report.skipped], [[], [], []])
    await witness.ready(1)
    const [entry] = entriesOf(join(folder, 'data', 'process-registry.json'))
    assert.deepEqual(Object.keys(entry).slice(0, 5), [
      'pid',
      'startedAt',
      'sessionId',
      'botPid',
      'commandPreview',
    ])
    assert.deepEqual([entry.pid, entry.sessionId, entry.botPid], [first.agent, 'chat-1', first.pid])
    assert.ok(Math.abs(Date.now() - entry.startedAt) < 60_000)

    // Stopped for certain, or it sees that its keeper is gone and ends the run itself.
    process.kill(first.pid, 'SIGSTOP')
    await until(() => stateOf(first.pid) === 'T', 'the bot has stopped')
    const keeper = keeperOf(entry)
    process.kill(statOf(keeper).parent, 'SIGKILL')
    process.kill(keeper, 'SIGKILL')
    process.kill(first.pid, 'SIGKILL')
    await first.ended
    assertAlive(witness)

    const second = await boot(t, folder, openWitness(t))
    assertGone(witness)
    assert.deepEqual(second.report.killed, [first.agent])
    const entries = entriesOf(join(folder, 'data', 'process-registry.json'))
    assert.deepEqual(
      entries.map(({ pid }) => pid),
      [second.agent],
    )
  },
)

/** Starts fixtures/chat-bot.mjs in this folder. Resolves when its agent is in the file. */
async function boot(t, cwd, witness) {
  const { SPAWN_OWNED_REGISTRY, ...env } = process.env
  const args = [script('chat-bot.mjs'), program('stays'), witness.path]
  const bot = spawn(process.execPath, args, { cwd, env, stdio: ['pipe', 'pipe', 'inherit'] })
  t.after(() => bot.kill('SIGKILL'))
  const [line] = await once(bot.stdout, 'data')
  return { pid: bot.pid, ended: once(bot, 'exit'), ...JSON.parse(line) }
}
