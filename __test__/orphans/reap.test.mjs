// reapOrphans: which runs of earlier bots it ends, which entries it drops, what it leaves alone.
// The witness shows which processes live. Real bots write the registry; some tests alter it.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { dirname, join } from 'node:path'
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
  keeperOf,
  past,
  stateOf,
  statOf,
  stopKeeper,
  supervise,
  until,
} from '../support/bots.mjs'
import { elusiveTree, treeNamed, treeOptions } from '../support/hostile-trees.mjs'
import { assertReport, crashed, crashedAs, kept, mistaken, owned } from '../support/orphans.mjs'
import {
  assert,
  CLEANED_UP,
  describe,
  openWitness,
  options,
  program,
  script,
  test,
  together,
} from '../support/prelude.mjs'
import {
  forScripts,
  isWindows,
  linuxOnly,
  NO_KEEPER,
  NO_NAMESPACES,
  NO_STOPPING,
  NOT_FROM_OUTSIDE,
  posixOnly,
} from '../support/system.mjs'

describe('if the bot of a run is dead,', together, () => {
  test('reapOrphans ends the run if the keeper is dead too', options, async (t) => {
    const { next, path, pid, witness } = await crashed(t)
    const report = await next.reapOrphans(process.pid)
    assertGone(witness)
    assertReport(report, { killed: [pid] })
    await fileHas(path, 0)
    assertReport(await next.reapOrphans(), {})
  })

  test(
    'reapOrphans reports a run that its keeper has ended as already dead',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const { bot, next, path, pid, record, witness } = await owned(t)
      await bot.kill()
      await witness.gone(20_000)
      await gone(keeperOf(record))
      const report = await next.reapOrphans()
      assertReport(report, { alreadyDead: [pid] })
      assert.equal(report.decisions[0].facts.reason, 'end-recorded')
      assert.equal(report.decisions[0].record.exit.ending, 'owner-exit')
      await fileHas(path, 0)
    },
  )

  test('reapOrphans ends a run that its keeper is ending at the same time', options, async (t) => {
    const { bot, next, path, pid, record, witness } = await owned(t, { tree: treeNamed('ignores-sigterm') })
    await bot.kill()
    const { killed, alreadyDead } = await next.reapOrphans()
    assertGone(witness)
    assert.deepEqual([...killed, ...alreadyDead], [pid])
    // The last report of the keeper must not bring the entry back.
    await gone(keeperOf(record))
    await fileHas(path, 0)
    assertReport(await next.reapOrphans(), {})
  })

  test('reapOrphans ends a run that is a bot, together with the runs of that bot', options, async (t) => {
    const nested = [script('nested-bot.mjs'), elusiveTree().command('')[0]]
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() }
    const tree = { ready: 2, command: (path) => [process.execPath, [...forScripts, ...nested, path]] }
    const { next, pid, witness } = await crashed(t, { tree, env })
    assertReport(await next.reapOrphans(), { killed: [pid] })
    // The inner keeper ends its run because the inner bot has exited.
    await witness.gone(20_000)
  })

  test(
    'reapOrphans sends SIGTERM first and waits for the grace period',
    posixOnly(NOT_FROM_OUTSIDE, options),
    async (t) => {
      const tree = { ready: 2, command: (path) => [program('cleans-up-on-sigterm'), [path]] }
      const { next, pid, witness } = await crashed(t, { tree, graceMs: 10_000 })
      assertReport(await next.reapOrphans(), { killed: [pid] })
      assertGone(witness)
      assert.equal(witness.count(CLEANED_UP), 2)
    },
  )

  test('reapOrphans sends SIGKILL after the given graceMs', options, async (t) => {
    const { next, pid, witness } = await crashed(t, { tree: treeNamed('ignores-sigterm'), graceMs: 60_000 })
    assertReport(await next.reapOrphans({ graceMs: 50 }), { killed: [pid] })
    assertGone(witness)
  })

  test('the lease no longer protects the run, even if it has not expired', options, async (t) => {
    const { next, pid, record } = await crashed(t)
    assert.ok(record.leaseExpiresAtMs > Date.now() + 10_000)
    assertReport(await next.reapOrphans(), { killed: [pid] })
  })

  test('one call of reapOrphans ends the runs of several bots', options, async (t) => {
    const path = freshRegistry()
    const runs = []
    for (let i = 0; i < 3; i++) runs.push(await crashed(t, { path }))
    const { killed } = await supervise(path).reapOrphans()
    assert.deepEqual(killed.toSorted(), runs.map(({ pid }) => pid).toSorted())
    for (const { witness } of runs) assertGone(witness)
  })
})

describe('if the bot of a run is alive, reapOrphans leaves the run', together, () => {
  test('alone, and lists it nowhere', options, async (t) => {
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

  test('alone, even if its lease has expired', options, async (t) => {
    const { record, witness } = await owned(t)
    const next = supervise(freshRegistry([{ ...record, leaseExpiresAtMs: Date.now() - 60_000 }]))
    const report = await next.reapOrphans()
    assertReport(report, {})
    assert.equal(report.decisions[0].facts.reason, 'lease-expired-owner-alive')
    assertAlive(witness)
  })

  test('alone, if this process is its bot', options, async (t) => {
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

  test('alone, if the argument names its bot', options, async (t) => {
    const { bot, next, witness } = await owned(t)
    const report = await next.reapOrphans(bot.pid)
    assertReport(report, {})
    assert.equal(report.decisions[0].facts.reason, 'own-run')
    assertAlive(witness)
  })

  test('alone, and ends only the run of another bot that is dead', options, async (t) => {
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
  'a bot with the same PID as the previous bot (in a container) reaps the runs of that bot',
  options,
  async (t) => {
    const mine = captureStartToken(process.pid)
    const earlier = { botPid: process.pid, botStartToken: past(mine) }
    const { next, pid, witness } = await crashedAs(t, () => earlier)
    assertReport(await next.reapOrphans(process.pid), { killed: [pid] })
    assertGone(witness)
  },
)

describe('if a run was started', together, () => {
  test(
    'before a reboot, its entry is dropped, and the process that has its PID now lives on',
    options,
    async (t) => {
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
    },
  )

  test(
    'in another PID namespace, it is skipped, and its entry stays',
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
    'by a bot in another PID namespace, it counts as alive until its lease expires',
    linuxOnly(NO_NAMESPACES, options),
    async (t) => {
      const otherNamespace = ({ startToken, botStartToken }) => ({
        startToken: altered(startToken, { ns: 4 }),
        botStartToken: altered(botStartToken, { ns: 4 }),
      })
      const { next, path, pid, record, witness } = await mistaken(t, otherNamespace)
      assertReport(await next.reapOrphans(), {})
      const late = supervise(freshRegistry([{ ...record, leaseExpiresAtMs: Date.now() - 1 }]))
      assertReport(await late.reapOrphans(), { skipped: [pid] })
      assertAlive(witness)
      assert.equal(entriesOf(path).length, 1)
    },
  )
})

describe('if the bot is dead and the keeper', together, () => {
  for (const tree of ['cleared-environment', 'half-setsid', 'hydra', 'stopped'].map(treeNamed)) {
    test(`is alive, the keeper ends the whole tree: ${tree.name}`, treeOptions(tree, options), async (t) => {
      const { next, path, pid, record, witness } = await kept(t, { tree })
      const report = await next.reapOrphans()
      assertGone(witness)
      assertReport(report, { killed: [pid] })
      if (!isWindows) assert.equal(report.decisions[0].facts.keeper, 'alive')
      await gone(keeperOf(record))
      await fileHas(path, 0)
    })
  }

  test(
    'is stopped, reapOrphans continues it, and the keeper ends the whole tree',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const { next, pid, record, witness } = await kept(t, { tree: elusiveTree() })
      await stopKeeper(t, record)
      assertReport(await next.reapOrphans(), { killed: [pid] })
      assertGone(witness)
    },
  )

  for (const tree of ['half-setsid', 'double-fork-daemon', 'ignores-sigterm', 'stopped'].map(treeNamed)) {
    test(
      `is dead, reapOrphans itself ends the tree: ${tree.name}`,
      posixOnly(tree.posix, options),
      async (t) => {
        const { next, pid, witness } = await crashed(t, { tree })
        const report = await next.reapOrphans()
        assertGone(witness)
        assertReport(report, { killed: [pid] })
        if (!isWindows) assert.equal(report.decisions[0].facts.keeper, 'dead')
      },
    )
  }

  test('is dead, bystanders with a similar cookie live on', options, async (t) => {
    const runId = 'the-run'
    const cookies = ['the-run2', 'a-the-run', 'x:the-ru', 'other', 'the-run', `the-run:~${'0'.repeat(32)}`]
    const others = []
    for (const cookie of cookies) others.push(await bystander(t, { env: { SPAWN_OWNED_RUN: cookie } }))
    const { next, pid, witness } = await crashed(t, { runId })
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
    for (const other of others) assertAlive(other.witness)
  })
})

test(
  'a chat bot that calls reapOrphans(process.pid) at start ends the agent of the previous bot',
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

    // Wait for the stop. Otherwise the bot sees that its keeper is gone and ends the run itself.
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
