// Cancels a run for which the caller has no handle: a run of another bot, of a dead bot, or its own
// run without a reference.
// When cancel() resolves, the tree is gone, and the owner's wait() returns the same result.
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { captureStartToken } from 'spawn-owned'
import {
  altered,
  assertAlive,
  assertGone,
  bystander,
  fileHas,
  freshRegistry,
  inAScript,
  past,
  startBot,
  supervise,
  until,
} from '../support/bots.mjs'
import { assertCancelled, runOfAnotherBot } from '../support/cancelled-runs.mjs'
import { elusiveTree, treeNamed, treeOptions } from '../support/hostile-trees.mjs'
import {
  assert,
  CLEANED_UP,
  describe,
  FOR_EVER,
  openWitness,
  options,
  program,
  script,
  test,
} from '../support/prelude.mjs'
import {
  linuxOnly,
  NO_NAMESPACES,
  NO_SIGNALS,
  NO_STOPPING,
  notUnderWine,
  posixOnly,
  WINE_CANNOT_ASK,
} from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

describe('another process cancels a run by', together, () => {
  const facts = {
    runId: 'run-7',
    sessionId: 'session-7',
    scopeKey: 'scope-7',
    labels: { agent: 'claude', company: 'acme' },
  }
  const targets = {
    'its run id': () => 'run-7',
    'its run id in a filter': () => ({ runId: 'run-7' }),
    'its session': () => ({ sessionId: 'session-7' }),
    'its scope': () => ({ scopeKey: 'scope-7' }),
    'its PID': (pid) => ({ pid }),
    'a label': () => ({ labels: { agent: 'claude' } }),
    'several criteria': (pid) => ({ pid, sessionId: 'session-7', labels: { company: 'acme' } }),
  }
  for (const [what, target] of Object.entries(targets)) {
    test(what, options, async (t) => {
      const run = await runOfAnotherBot(t, facts)
      const other = await runOfAnotherBot(t, { path: run.path, bot: run.bot, sessionId: 'session-8' })
      await assertCancelled(run, await run.here.cancel(target(run.pid)))
      assertAlive(other.witness)
    })
  }

  test('a session that has runs of several bots', options, async (t) => {
    const path = freshRegistry()
    const runs = []
    for (let i = 0; i < 3; i++) runs.push(await runOfAnotherBot(t, { path, sessionId: 'shared' }))
    const { outcome, exits } = await runs[0].here.cancel({ sessionId: 'shared' })
    for (const { witness } of runs) assertGone(witness)
    assert.equal(outcome, 'cancelled')
    assert.deepEqual(exits.map(({ runId }) => runId).toSorted(), runs.map(({ runId }) => runId).toSorted())
    for (const { bot, runId } of runs) assert.equal((await bot.ask('wait', runId)).reason, 'manual-cancel')
  })
})

test('a script cancels a run of another bot, and a second cancel finds nothing', options, async (t) => {
  const run = await runOfAnotherBot(t, { sessionId: 'chat' })
  const [result] = await inAScript(run.path, 'cancel', { sessionId: 'chat' })
  await assertCancelled(run, result)
  await fileHas(run.path, 0)
  assert.deepEqual(await inAScript(run.path, 'cancel', { sessionId: 'chat' }), [
    { outcome: 'not-found', exits: [] },
  ])
})

describe('a cancel from another process ends the whole tree of', together, () => {
  const names = [
    'half-setsid',
    'double-fork-daemon',
    'hydra',
    'ignores-sigterm',
    'forks-on-sigterm',
    'stopped',
  ]
  for (const tree of names.map(treeNamed)) {
    test(tree.name, treeOptions(tree, options), async (t) => {
      const run = await runOfAnotherBot(t, { tree })
      await assertCancelled(run, await run.here.cancel(run.runId))
    })
  }
})

describe('a cancel from another process', together, () => {
  for (const reason of ['shutdown', 'no-output-timeout', 'overall-timeout', 'owner-exit']) {
    test(`gives the owner its reason: ${reason}`, options, async (t) => {
      const run = await runOfAnotherBot(t)
      await assertCancelled(run, await run.here.cancel(run.runId, { reason }), reason)
    })
  }

  test('sends SIGTERM and leaves time to clean up', notUnderWine(WINE_CANNOT_ASK, options), async (t) => {
    const tree = { ready: 2, command: (path) => [program('cleans-up-on-sigterm'), [path]] }
    const run = await runOfAnotherBot(t, { tree })
    const result = await run.here.cancel(run.runId, { graceMs: FOR_EVER })
    await assertCancelled(run, result)
    assert.equal(run.witness.count(CLEANED_UP), 2)
    assert.equal(result.exits[0].exitCode, 0)
  })

  test('can send another signal', posixOnly(NO_SIGNALS, options), async (t) => {
    const run = await runOfAnotherBot(t)
    const result = await run.here.cancel(run.runId, { signal: 'SIGINT', graceMs: FOR_EVER })
    await assertCancelled(run, result)
    assert.equal(result.exits[0].signal, 'SIGINT')
  })

  test('with SIGKILL does not wait for the grace period', options, async (t) => {
    const run = await runOfAnotherBot(t, { tree: treeNamed('ignores-sigterm') })
    const result = await run.here.cancel(run.runId, { signal: 'SIGKILL', graceMs: FOR_EVER })
    await assertCancelled(run, result)
    assert.equal(result.exits[0].signal, 'SIGKILL')
  })

  test(
    'returns the same reason to every bot that cancels',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const run = await runOfAnotherBot(t, { tree: treeNamed('ignores-sigterm') })
      const third = await startBot(t, run.path)
      // The tree lives for the whole grace period, and all three cancels arrive in that time.
      const graceMs = 4000
      const answers = await Promise.all([
        run.here.cancel(run.runId, { graceMs }),
        third.ask('cancel', run.runId, { graceMs }),
        run.bot.ask('cancelRun', run.runId, { graceMs }),
      ])
      assertGone(run.witness)
      assert.deepEqual([answers[0].outcome, answers[1].outcome], ['cancelled', 'cancelled'])
      for (const { reason } of [answers[0].exits[0], answers[1].exits[0], answers[2]]) {
        assert.equal(reason, 'manual-cancel')
      }
    },
  )

  test('sends SIGTERM once although 30 callers cancel', notUnderWine(WINE_CANNOT_ASK, options), async (t) => {
    const tree = { ready: 2, command: (path) => [program('cleans-up-on-sigterm'), [path]] }
    const run = await runOfAnotherBot(t, { tree })
    const cancels = Array.from({ length: 30 }, () => run.here.cancel(run.runId, { graceMs: FOR_EVER }))
    const results = await Promise.all(cancels)
    // A cancel that arrives after the exit gets `already-exited`.
    const [inTime, late] = ['cancelled', 'already-exited'].map((it) =>
      results.filter(({ outcome }) => outcome === it),
    )
    assert.equal(inTime.length + late.length, cancels.length)
    assert.ok(inTime.length > 0)
    for (const result of inTime) await assertCancelled(run, result)
    assert.equal(run.witness.count(CLEANED_UP), 2)
  })

  test(
    'returns the same result again to callers that know the run, and not-found to others',
    options,
    async (t) => {
      const run = await runOfAnotherBot(t)
      const result = await run.here.cancel(run.runId)
      assert.deepEqual(await run.here.cancel(run.runId), result)
      const { outcome, exits } = await run.bot.ask('cancel', run.runId)
      assert.deepEqual([outcome, exits[0].reason], ['cancelled', 'manual-cancel'])
      await until(() => run.here.list().length === 0, 'the registry entry is gone')
      const thirdBot = await startBot(t, run.path)
      assert.deepEqual(await thirdBot.ask('cancel', run.runId), { outcome: 'not-found', exits: [] })
    },
  )

  test(
    'does not return the reason lost to a third bot that cancels right after the end',
    posixOnly(NO_STOPPING, options),
    async (t) => {
      const run = await runOfAnotherBot(t)
      const third = await startBot(t, run.path)
      // The owner cannot update the registry entry yet.
      run.bot.signal('SIGSTOP')
      await run.here.cancel(run.runId)
      const { outcome, exits } = await third.ask('cancel', run.runId)
      assertGone(run.witness)
      assert.ok(['not-found', 'already-exited', 'cancelled'].includes(outcome))
      for (const { reason, message } of exits) assert.notEqual(reason, 'lost', message)
    },
  )

  test('returns already-exited or not-found for a run that exited by itself', options, async (t) => {
    const run = await runOfAnotherBot(t, {
      tree: { ready: 1, command: (path) => ['sh', ['-c', 'printf r >"$1"; exit 3', 'sh', path]] },
    })
    const exit = await run.bot.ask('wait', run.runId)
    assert.deepEqual([exit.reason, exit.exitCode], ['exit', 3])
    await until(() => run.here.list().length === 0, 'the registry entry is gone')
    assert.equal((await run.here.cancel(run.runId)).outcome, 'not-found')
    assert.deepEqual(await run.bot.ask('cancel', run.runId), { outcome: 'already-exited', exits: [exit] })
  })
})

describe('a cancel ends no process if it gets', together, () => {
  const empty = 'ERR_OWNED_EMPTY_FILTER'
  const refused = [
    [{}, empty],
    [{ labels: {} }, empty],
    [{ sessionId: undefined }, empty],
    [undefined, 'ERR_INVALID_ARG_TYPE'],
    [null, 'ERR_INVALID_ARG_TYPE'],
    [{ sessionId: 's', sesion: 'typo' }, 'ERR_INVALID_ARG_VALUE'],
  ]
  test('an empty or an invalid filter', options, async (t) => {
    const { here, witness } = await runOfAnotherBot(t, { sessionId: 's' })
    for (const [target, code] of refused) await assert.rejects(here.cancel(target), { code })
    await assert.rejects(here.cancel({ sessionId: 's' }, { signal: 'SIGNONE' }), {
      code: 'ERR_UNKNOWN_SIGNAL',
    })
    await assert.rejects(here.cancel({ sessionId: 's' }, { reason: 'whim' }), {
      code: 'ERR_INVALID_ARG_VALUE',
    })
    assertAlive(witness)
  })

  test('a target that matches nothing', options, async (t) => {
    const { here, pid, runId, witness } = await runOfAnotherBot(t, {
      sessionId: 's',
      labels: { agent: 'claude' },
    })
    const unrelated = await bystander(t)
    const targets = [
      `${runId}0`,
      runId.slice(0, -1),
      '',
      { sessionId: 'S' },
      { scopeKey: 's' },
      { pid: pid + 1 },
      { pid: unrelated.pid },
      { sessionId: 's', labels: { agent: 'codex' } },
      { labels: { agent: 'claude', company: 'acme' } },
    ]
    for (const target of targets) {
      assert.deepEqual(await here.cancel(target), { outcome: 'not-found', exits: [] }, JSON.stringify(target))
    }
    assertAlive(witness)
    assertAlive(unrelated.witness)
  })

  test('a registry that does not exist', options, async () => {
    const here = supervise(freshRegistry())
    assert.deepEqual(await here.cancel('run'), { outcome: 'not-found', exits: [] })
  })

  test('an entry whose PID belongs to another process by now', options, async (t) => {
    const run = await runOfAnotherBot(t)
    const [record] = run.here.list()
    await run.bot.killWithHelpers()
    const unrelated = await bystander(t)
    const startToken = past(captureStartToken(unrelated.pid))
    const entry = { ...record, pid: unrelated.pid, pgid: unrelated.pid, startToken, runId: 'reused' }
    const here = supervise(freshRegistry([entry]))
    const { outcome } = await here.cancel('reused')
    assert.notEqual(outcome, 'cancelled')
    assertAlive(unrelated.witness)
    await run.here.cancel(run.runId)
  })

  test('an entry of another PID namespace', linuxOnly(NO_NAMESPACES, options), async (t) => {
    const run = await runOfAnotherBot(t)
    const [record] = run.here.list()
    const ofAnotherNamespace = (token) => altered(token, { ns: 4 })
    const entry = { ...record, startToken: ofAnotherNamespace(record.startToken) }
    const keeper = { ...record.keeper, startToken: ofAnotherNamespace(record.keeper.startToken) }
    const here = supervise(freshRegistry([{ ...entry, keeper }]))
    const answer = await here.cancel(run.runId, { graceMs: 0 }).catch((error) => error)
    assert.ok(
      answer.code === 'ERR_OWNED_CANCEL_FAILED' || answer.exits[0].survivors.length > 0,
      String(answer),
    )
    assertAlive(run.witness)
  })
})

describe('in the same process, without a reference to the run,', together, () => {
  test('another supervisor cancels it', options, async (t) => {
    const path = freshRegistry()
    const witness = openWitness(t)
    const tree = elusiveTree()
    const [command, args] = tree.command(witness.path)
    const one = supervise(path)
    const run = one.spawnOwned(command, args, { stdio: 'ignore', sessionId: 'lost' })
    await witness.ready(tree.ready)
    const { outcome, exits } = await supervise(path).cancel({ sessionId: 'lost' })
    assertGone(witness)
    assert.deepEqual([outcome, exits.map(({ runId }) => runId)], ['cancelled', [run.runId]])
    assert.equal((await run.wait()).reason, 'manual-cancel')
    await fileHas(path, 0)
    assert.deepEqual(await one.cancel(run.runId), { outcome: 'cancelled', exits: [await run.wait()] })
  })

  test('cancel ends a run that a worker thread has started', options, async (t) => {
    const path = freshRegistry()
    const witness = openWitness(t)
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: path }
    const workerData = { command: program('double-fork-daemon'), args: [witness.path] }
    const worker = new Worker(script('worker-with-a-run.mjs'), { workerData, env })
    const ended = once(worker, 'exit')
    const messages = []
    worker.on('message', (message) => messages.push(message))
    await witness.ready(2)
    const here = supervise(path)
    const [record] = here.list()
    const { outcome } = await here.cancel({ pid: record.pid })
    assertGone(witness)
    assert.equal(outcome, 'cancelled')
    await ended
    assert.equal(messages.at(-1).reason, 'manual-cancel')
  })

  test('cancel ends a run whose worker thread is gone', options, async (t) => {
    const path = freshRegistry()
    const witness = openWitness(t)
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: path }
    const workerData = { command: program('double-fork-daemon'), args: [witness.path] }
    const worker = new Worker(script('worker-with-a-run.mjs'), { workerData, env })
    await witness.ready(2)
    await worker.terminate()
    const here = supervise(path)
    const [record] = here.list()
    const { outcome } = await here.cancel(record?.runId ?? 'gone')
    // The keeper ends the run because its owner is gone.
    if (outcome === 'not-found') await witness.gone(20_000)
    assertGone(witness)
  })
})
