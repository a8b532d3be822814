// The next bot adopts runs that outlive their bot (onOwnerExit: 'keep'), and registered processes.
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import {
  assertAlive,
  assertGone,
  bystander,
  fileHas,
  freshRegistry,
  gone,
  inAScript,
  keeperOf,
  startBot,
  supervise,
} from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { exited, keeping, keepingUntilOrder, kept } from '../support/kept-runs.mjs'
import { assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import {
  ENDS_WITH_PARENT,
  NO_FIFOS,
  NO_KEEPER,
  NO_SESSIONS,
  NO_SIGNALS,
  NO_STOPPING,
  posixOnly,
} from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

describe('an adopted run', together, () => {
  test('that exits gives its exit code to wait()', options, async (t) => {
    const { bot, next, path, runId, exitWith, witness } = await keepingUntilOrder(t)
    await bot.kill()
    const run = await next.adopt(runId)
    const waiting = run.wait()
    await exitWith(7)
    const exit = await waiting
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.exitCode, exit.signal], ['exit', 7, null])
    assert.equal(run.state, 'exited')
    await fileHas(path, 0)
  })

  test('that is killed gives the signal to wait()', posixOnly(NO_SIGNALS, options), async (t) => {
    const { next, pid, runId, witness } = await kept(t, { tree: treeNamed('double-fork-daemon') })
    const run = await next.adopt(runId)
    process.kill(pid, 'SIGKILL')
    const exit = await run.wait()
    assertGone(witness)
    assert.equal(exit.signal, 'SIGKILL')
    // The daemon left the session and outlived the root.
    assert.deepEqual([exit.reason, exit.escaped.length], ['ownership-escape', 1])
  })

  test(
    'that exited before the adoption is exited and has its exit code',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const run = await keepingUntilOrder(t)
      await run.bot.kill()
      await run.exitWith(5)
      const { ending, exitCode } = await exited(run)
      assert.deepEqual([ending, exitCode], ['root-exit', 5])
      assert.deepEqual(run.next.list(), [], 'the run is not listed as alive')
      const adopted = await run.next.adopt(run.runId)
      assert.equal(adopted.state, 'exited')
      const exit = await adopted.wait()
      assert.deepEqual([exit.reason, exit.exitCode, exit.survivors], ['exit', 5, []])
      assert.deepEqual(await adopted.cancel(), exit)
    },
  )

  test('has one handle, which each call of adopt returns', options, async (t) => {
    const { next, runId } = await kept(t)
    const [one, two] = await Promise.all([next.adopt(runId), next.adopt(runId)])
    assert.equal(one, two)
    assert.equal(await next.adopt(runId), one)
    await one.cancel()
    assert.equal(await next.adopt(runId), one)
  })

  test('has a handle also if reapOrphans adopted it', options, async (t) => {
    const { next, pid, runId, witness } = await kept(t, { sessionId: 'kept' })
    const { adopted, killed } = await next.reapOrphans({ policy: 'adopt' })
    assert.deepEqual([adopted.map((record) => record.pid), killed], [[pid], []])
    assertAlive(witness)
    const run = await next.adopt(runId)
    const { outcome, exits } = await next.cancel({ sessionId: 'kept' })
    assertGone(witness)
    assert.deepEqual([outcome, exits], ['cancelled', [await run.wait()]])
  })

  test('is listed with its new owner, which does not reap it', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const run = await next.adopt(runId)
    const [record] = next.list({ runId })
    assert.deepEqual([record.botPid, record.ownerInstanceId], [process.pid, next.instanceId])
    assert.ok(record.leaseExpiresAtMs > Date.now())
    assert.deepEqual((await next.reapOrphans()).killed, [])
    assertAlive(witness)
    await run.cancel()
  })

  test('survives its second bot too, and a third bot adopts it', options, async (t) => {
    const { next, path, runId, witness } = await kept(t)
    for (let i = 0; i < 2; i++) {
      const bot = await startBot(t, path)
      const { state } = await bot.ask('adopt', runId)
      assert.equal(state, 'running')
      await bot.kill()
      assertAlive(witness)
    }
    await (await next.adopt(runId)).cancel()
    assertGone(witness)
  })

  test('can be cancelled by another process, and its new owner gets the exit', options, async (t) => {
    const { next, path, runId, witness } = await kept(t)
    const bot = await startBot(t, path)
    await bot.ask('adopt', runId)
    const { outcome } = await next.cancel(runId, { reason: 'shutdown' })
    assertGone(witness)
    assert.equal(outcome, 'cancelled')
    assert.equal((await bot.ask('wait', runId)).reason, 'shutdown')
  })

  test(
    'whose keeper is killed is lost, and its proven members end',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const { next, runId, witness } = await kept(t, { tree: treeNamed('half-setsid') })
      const run = await next.adopt(runId)
      process.kill(keeperOf(next.list()[0]), 'SIGKILL')
      const exit = await run.wait()
      assertGone(witness)
      assert.equal(exit.reason, 'lost')
    },
  )

  test('whose keeper was killed before can be waited for and cancelled', options, async (t) => {
    const { bot, next, runId, witness } = await keeping(t, { tree: treeNamed('half-setsid') })
    await bot.killWithHelpers()
    assertAlive(witness)
    const run = await next.adopt(runId)
    assertAlive(witness)
    const exit = await run.cancel()
    assertGone(witness)
    assert.deepEqual([exit.runId, exit.survivors], [runId, []])
  })

  test(
    'whose root exited before, with onLeaderExit: keep, has the exit code of the root',
    posixOnly(NO_FIFOS, options),
    async (t) => {
      const line = 'exec 3>"$2"; "$1" "$2" & printf r >&3; read -r code <"$3"; exit "$code"'
      let orderPath
      const tree = {
        ready: 2,
        command: (path) => {
          orderPath = `${path}-order`
          execFileSync('mkfifo', [orderPath])
          return ['sh', ['-c', line, 'sh', program('stays'), path, orderPath]]
        },
      }
      const { next, pid, runId, witness } = await kept(t, { tree, onLeaderExit: 'keep' })
      await writeFile(orderPath, '7\n')
      await gone(pid)
      assertAlive(witness)
      const run = await next.adopt(runId)
      const exit = await run.cancel()
      assertGone(witness)
      assert.deepEqual([exit.exitCode, exit.signal, exit.survivors], [7, null, []])
    },
  )

  test('that exits during the adoption has its exit code', posixOnly(NO_KEEPER, options), async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const runs = []
    while (runs.length < 40) runs.push(await keepingUntilOrder(t, { path, bot }))
    await bot.kill()
    const [{ next }] = runs
    const codes = []
    for (const [index, { runId, witness }] of runs.entries()) {
      writeFileSync(`${witness.path}-order`, '3\n')
      // The adoption starts at instants between "the command has not read the order" and "the
      // command has exited".
      const adoptAt = performance.now() + index / 10
      while (performance.now() < adoptAt);
      const exit = await (await next.adopt(runId)).wait()
      assertGone(witness)
      codes.push([exit.reason, exit.exitCode])
    }
    assert.deepEqual(codes, Array(runs.length).fill(['exit', 3]))
  })

  test('does not keep its bot alive', options, async (t) => {
    const { next, path, runId, witness } = await kept(t)
    assert.deepEqual(await inAScript(path, 'adopt', runId), ['running'])
    assertAlive(witness)
    await (await next.adopt(runId)).cancel()
    assertGone(witness)
  })

  test('keeps its bot alive while wait() is pending', options, async (t) => {
    const { bot, path, runId, exitWith, witness } = await keepingUntilOrder(t)
    await bot.kill()
    const script = inAScript(path, 'adopt and wait', runId)
    // The script prints this after the adoption; the entry names the new owner before the keeper
    // agrees.
    await once(script.child.stdout, 'data')
    await exitWith(3)
    const [, exit] = await script
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.exitCode], ['exit', 3])
  })

  test('ends with `await using`', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const run = await next.adopt(runId)
    await run[Symbol.asyncDispose]()
    assertGone(witness)
  })
})

describe('adopt refuses', together, () => {
  test('a run of a live bot', options, async (t) => {
    const { bot, next, runId, witness } = await keeping(t)
    await assert.rejects(next.adopt(runId), { code: 'ERR_OWNED_OWNER_ALIVE' })
    assertAlive(witness)
    assert.equal(await bot.ask('state', runId), 'running')
    // The owner still controls the run.
    await bot.ask('cancelRun', runId)
    assertGone(witness)
  })

  test('a run of a stopped bot', posixOnly(NO_STOPPING, options), async (t) => {
    const { bot, next, runId, witness } = await keeping(t)
    bot.signal('SIGSTOP')
    await assert.rejects(next.adopt(runId), { code: 'ERR_OWNED_OWNER_ALIVE' })
    assertAlive(witness)
  })

  test('a run that does not exist', options, async (t) => {
    const { next } = await kept(t)
    await assert.rejects(next.adopt('another'), { code: 'ERR_OWNED_NOT_FOUND' })
    await assert.rejects(supervise(freshRegistry()).adopt('run'), { code: 'ERR_OWNED_NOT_FOUND' })
  })

  test('a run of the caller itself', options, async (t) => {
    const here = supervise(freshRegistry())
    const witness = openWitness(t)
    const run = here.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
    await witness.ready(1)
    await assert.rejects(here.adopt(run.runId), { code: 'ERR_OWNED_ALREADY_OWNED' })
    await run.cancel()
  })

  test('a value that is not a run id', options, async () => {
    const here = supervise(freshRegistry())
    for (const nonsense of [undefined, null, 7, {}]) {
      await assert.rejects(here.adopt(nonsense), { code: 'ERR_INVALID_ARG_TYPE' })
    }
  })

  test('all but one of three bots that adopt a run at the same time', options, async (t) => {
    const { path, runId, witness } = await kept(t)
    const bots = [await startBot(t, path), await startBot(t, path), await startBot(t, path)]
    const answers = await Promise.allSettled(bots.map((bot) => bot.ask('adopt', runId)))
    const winner = answers.findIndex(({ status }) => status === 'fulfilled')
    const losers = answers.filter(({ status }) => status === 'rejected')
    assert.equal(losers.length, 2)
    for (const { reason } of losers) assert.equal(reason.code, 'ERR_OWNED_OWNER_ALIVE', reason.message)
    assertAlive(witness)
    const instance = await bots[winner].ask('instanceId')
    assert.equal(supervise(path).list()[0].ownerInstanceId, instance)
    // The death of the other bots does not affect the run.
    await Promise.all(bots.filter((_, index) => index !== winner).map((bot) => bot.kill()))
    assertAlive(witness)
    await bots[winner].ask('cancelRun', runId)
    assertGone(witness)
  })

  test('a run that another bot adopts at the same time by reapOrphans', options, async (t) => {
    const path = freshRegistry()
    const runs = []
    for (let i = 0; i < 5; i++) runs.push(await kept(t, { path, tree: treeNamed('ignores-sigterm') }))
    const bots = [await startBot(t, path), await startBot(t, path)]
    const reports = await Promise.all(bots.map((bot) => bot.ask('reap', { policy: 'adopt' })))
    const adopted = reports.flatMap((report) => report.adopted.map(({ pid }) => pid))
    assert.deepEqual(adopted.toSorted(), runs.map(({ pid }) => pid).toSorted())
    for (const { failed, killed, skipped } of reports)
      assert.deepEqual([failed, killed, skipped], [[], [], []])
    for (const { witness } of runs) assertAlive(witness)
  })
})

describe('a registered process, which has no keeper,', together, () => {
  async function registered(t, { detached = true } = {}) {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const pid = await bot.ask('child', program('ignores-sigterm'), [witness.path], { detached })
    await witness.ready(2)
    const { runId } = await bot.ask('register', { pid, graceMs: 200 })
    await bot.kill()
    return { next: supervise(path), path, pid, runId, witness }
  }

  for (const detached of [true, false]) {
    test(
      `is adopted and cancelled: ${detached ? 'a group leader' : 'in the group of its bot'}`,
      posixOnly(!detached && ENDS_WITH_PARENT, options),
      async (t) => {
        const { next, path, pid, runId, witness } = await registered(t, { detached })
        const otherProcess = await bystander(t)
        const run = await next.adopt(runId)
        assert.equal(run.pid, pid)
        assertAlive(witness)
        const exit = await run.cancel()
        assertGone(witness)
        assert.deepEqual([exit.reason, exit.survivors], ['manual-cancel', []])
        assertAlive(otherProcess.witness)
        await fileHas(path, 0)
      },
    )
  }

  test('is adopted and waited for', posixOnly(NO_SESSIONS, options), async (t) => {
    const { next, path, pid, runId, witness } = await registered(t)
    const run = await next.adopt(runId)
    process.kill(-pid, 'SIGKILL')
    const exit = await run.wait()
    assertGone(witness)
    // Only a parent learns how its child exited.
    assert.deepEqual([exit.exitCode, exit.signal, exit.survivors], [null, null, []])
    await fileHas(path, 0)
  })

  test("is adopted by reapOrphans({ policy: 'adopt' }) and cancelled by PID", options, async (t) => {
    const { next, pid, witness } = await registered(t)
    const { adopted } = await next.reapOrphans({ policy: 'adopt' })
    assert.deepEqual(
      adopted.map((record) => record.pid),
      [pid],
    )
    assertAlive(witness)
    const { outcome } = await next.cancel({ pid })
    assertGone(witness)
    assert.equal(outcome, 'cancelled')
  })
})
