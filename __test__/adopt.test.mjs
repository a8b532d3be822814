// Runs that outlive their bot (onOwnerExit: 'keep'): their keeper keeps their deadline and records their end, and the next bot
// takes them over.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import {
  assertAlive,
  assertGone,
  bystander,
  entriesOf,
  fileHas,
  freshRegistry,
  gone,
  inAScript,
  keeperOf,
  startBot,
  supervise,
  until,
} from './support/bots.mjs'
import { program, shellScript } from './support/fixtures.mjs'
import { elusiveTree, treeNamed, treeOptions } from './support/hostile-trees.mjs'
import {
  ENDS_WITH_PARENT,
  isWindows,
  NO_FIFOS,
  NO_KEEPER,
  NO_SESSIONS,
  NO_SIGNALS,
  NO_STOPPING,
  posixOnly,
} from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 3 }

/** A run that is to be kept, standing, of a bot that lives. */
async function keeping(t, { tree = elusiveTree(), path, bot, ...more } = {}) {
  path ??= freshRegistry()
  bot ??= await startBot(t, path)
  const witness = openWitness(t)
  const [command, args] = tree.command(witness.path)
  const wish = { graceMs: 300, onOwnerExit: 'keep', ...more }
  const { runId, pid } = await bot.ask('spawn', command, args, wish)
  await witness.ready(tree.ready)
  const next = supervise(path)
  // The command may be faster than its bot's notes.
  await until(() => next.list({ runId })[0]?.state === 'running', 'it is known to run')
  return { bot, next, path, pid, runId, witness }
}

/** The same when the bot was SIGKILLed. */
async function kept(t, more) {
  const run = await keeping(t, more)
  await run.bot.kill()
  return run
}

/** A kept run that exits when it is told, with the code that it is told. */
async function obedient(t, more) {
  let tell
  const tree = {
    ready: 1,
    command: (path) => {
      const told = `${path}-told`
      if (!isWindows) execFileSync('mkfifo', [told])
      tell = (code) => writeFile(told, `${code}\n`)
      return shellScript('exits-when-told', path, told)
    },
  }
  const run = await keeping(t, { tree, ...more })
  return { ...run, tell }
}

const exited = ({ path, runId }) =>
  until(() => entriesOf(path).find((it) => it.runId === runId)?.exit, 'its end was recorded')

describe("onOwnerExit: 'keep'", together, () => {
  for (const tree of ['cleared-environment', 'half-setsid', 'hydra'].map(treeNamed)) {
    test(
      `survives the SIGKILL of its bot, whole, and can be adopted and cancelled: ${tree.name}`,
      treeOptions(tree, options),
      async (t) => {
        const { next, path, pid, runId, witness } = await kept(t, { tree })
        assertAlive(witness)
        const run = await next.adopt(runId)
        assert.deepEqual([run.runId, run.pid, run.state], [runId, pid, 'running'])
        assertAlive(witness)
        const waiting = run.wait()
        const exit = await run.cancel()
        assertGone(witness)
        assert.deepEqual([exit.runId, exit.reason, exit.survivors], [runId, 'manual-cancel', []])
        assert.deepEqual(await waiting, exit)
        assert.equal(run.state, 'exited')
        await fileHas(path, 0)
      },
    )
  }

  test('survives a bot that exits by itself', options, async (t) => {
    const { bot, next, runId, witness } = await keeping(t)
    await bot.kill('SIGTERM')
    assertAlive(witness)
    await (await next.adopt(runId)).cancel()
    assertGone(witness)
  })

  test("'kill' beside it does not", options, async (t) => {
    const spared = await keeping(t)
    const { witness } = await keeping(t, { path: spared.path, bot: spared.bot, onOwnerExit: 'kill' })
    await spared.bot.kill()
    await witness.gone(20_000)
    assertAlive(spared.witness)
  })

  test(
    'its deadline ends it all the same, and that is recorded',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      // Time enough to see it alive after its bot's death, on a slow machine too.
      const run = await kept(t, { timeoutMs: 4000, tree: treeNamed('half-setsid') })
      assertAlive(run.witness)
      await run.witness.gone(30_000)
      const { ending, survivors } = await exited(run)
      assert.deepEqual([ending, survivors], ['overall-timeout', 0])
      const exit = await (await run.next.adopt(run.runId)).wait()
      assert.deepEqual([exit.reason, exit.timedOut, exit.survivors], ['overall-timeout', true, []])
    },
  )

  test(
    'its deadline holds, even if its bot has died right after the start',
    posixOnly(NO_KEEPER, options),
    async (t) => {
      const witness = openWitness(t)
      // Every run holds the witness from its beginning, and the bot does until then.
      const stdio = ['ignore', 'ignore', 'ignore', { file: witness.path }]
      const wish = { stdio, timeoutMs: 700, graceMs: 300, onOwnerExit: 'keep' }
      for (let i = 0; i < 4; i++) {
        const bot = await startBot(t, freshRegistry())
        await assert.rejects(bot.ask('spawnAndDie', 3, program('stays'), [witness.path], wish))
      }
      witness.release()
      await witness.gone(30_000)
    },
  )

  test('is kept from the moment that spawnOwned has returned', options, async (t) => {
    const path = freshRegistry()
    for (let i = 0; i < 4; i++) {
      const witness = openWitness(t)
      const bot = await startBot(t, path)
      await assert.rejects(
        bot.ask('spawnAndDie', 3, program('stays'), [witness.path], { onOwnerExit: 'keep' }),
      )
      await witness.ready(3)
      const next = supervise(path)
      const runs = await Promise.all(next.list().map(({ runId }) => next.adopt(runId)))
      assert.equal(runs.length, 3)
      for (const run of runs) assert.equal(run.state, 'running')
      await Promise.all(runs.map((run) => run.cancel()))
      await witness.gone()
    }
  })

  test('is running, even if its bot had no time to say so', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const [record] = next.list({ runId })
    const another = supervise(freshRegistry([{ ...record, state: 'starting' }]))
    const run = await another.adopt(runId)
    assert.equal(run.state, 'running')
    assert.equal(another.list()[0].state, 'running')
    await run.cancel()
    assertGone(witness)
  })

  test('its deadline ends it also when it was adopted', options, async (t) => {
    const { next, runId, witness } = await kept(t, { timeoutMs: 4000 })
    const run = await next.adopt(runId)
    const exit = await run.wait()
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.timedOut], ['overall-timeout', true])
  })

  test('its output goes on to the files it was given', options, async (t) => {
    const folder = join(freshRegistry(), '..', '..')
    const [out, err] = [join(folder, 'out.log'), join(folder, 'err.log')]
    const { bot, next, runId, tell, witness } = await obedient(t, {
      stdio: ['ignore', { file: out }, { file: err }],
    })
    await bot.kill()
    const run = await next.adopt(runId)
    await tell(0)
    const exit = await run.wait()
    assertGone(witness)
    assert.equal(exit.exitCode, 0)
    assert.equal(readFileSync(out, 'utf8'), 'started\ntold 0\n')
    assert.equal(readFileSync(err, 'utf8'), 'leaving with 0\n')
  })
})

describe('an adopted run', together, () => {
  test('that exits is waited for, with its code', options, async (t) => {
    const { bot, next, path, runId, tell, witness } = await obedient(t)
    await bot.kill()
    const run = await next.adopt(runId)
    const waiting = run.wait()
    await tell(7)
    const exit = await waiting
    assertGone(witness)
    assert.deepEqual([exit.reason, exit.exitCode, exit.signal], ['exit', 7, null])
    assert.equal(run.state, 'exited')
    await fileHas(path, 0)
  })

  test('that is killed says by what', posixOnly(NO_SIGNALS, options), async (t) => {
    const { next, pid, runId, witness } = await kept(t, { tree: treeNamed('double-fork-daemon') })
    const run = await next.adopt(runId)
    process.kill(pid, 'SIGKILL')
    const exit = await run.wait()
    assertGone(witness)
    assert.equal(exit.signal, 'SIGKILL')
    // The daemon had left the session, and outlived the root.
    assert.deepEqual([exit.reason, exit.escaped.length], ['ownership-escape', 1])
  })

  test('that had exited meanwhile says so, with its code', posixOnly(NO_KEEPER, options), async (t) => {
    const run = await obedient(t)
    await run.bot.kill()
    await run.tell(5)
    const { ending, exitCode } = await exited(run)
    assert.deepEqual([ending, exitCode], ['root-exit', 5])
    assert.deepEqual(run.next.list(), [], 'it is no live run')
    const adopted = await run.next.adopt(run.runId)
    assert.equal(adopted.state, 'exited')
    const exit = await adopted.wait()
    assert.deepEqual([exit.reason, exit.exitCode, exit.survivors], ['exit', 5, []])
    assert.deepEqual(await adopted.cancel(), exit)
  })

  test('gives the same handle however often it is asked for', options, async (t) => {
    const { next, runId } = await kept(t)
    const [one, two] = await Promise.all([next.adopt(runId), next.adopt(runId)])
    assert.equal(one, two)
    assert.equal(await next.adopt(runId), one)
    await one.cancel()
    assert.equal(await next.adopt(runId), one)
  })

  test('gives its handle also if reapOrphans has adopted it', options, async (t) => {
    const { next, pid, runId, witness } = await kept(t, { sessionId: 'kept' })
    const { adopted, killed } = await next.reapOrphans({ policy: 'adopt' })
    assert.deepEqual([adopted.map((record) => record.pid), killed], [[pid], []])
    assertAlive(witness)
    const run = await next.adopt(runId)
    const { outcome, exits } = await next.cancel({ sessionId: 'kept' })
    assertGone(witness)
    assert.deepEqual([outcome, exits], ['cancelled', [await run.wait()]])
  })

  test('is in the list as ours, and is not reaped by us', options, async (t) => {
    const { next, runId, witness } = await kept(t)
    const run = await next.adopt(runId)
    const [record] = next.list({ runId })
    assert.deepEqual([record.botPid, record.ownerInstanceId], [process.pid, next.instanceId])
    assert.ok(record.leaseExpiresAtMs > Date.now())
    assert.deepEqual((await next.reapOrphans()).killed, [])
    assertAlive(witness)
    await run.cancel()
  })

  test('survives its second bot as well, and its third adopts it', options, async (t) => {
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

  test('can be cancelled from elsewhere, and its new owner hears of it', options, async (t) => {
    const { next, path, runId, witness } = await kept(t)
    const bot = await startBot(t, path)
    await bot.ask('adopt', runId)
    const { outcome } = await next.cancel(runId, { reason: 'shutdown' })
    assertGone(witness)
    assert.equal(outcome, 'cancelled')
    assert.equal((await bot.ask('wait', runId)).reason, 'shutdown')
  })

  test(
    'whose keeper is killed is lost, and what was proven is gone',
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

  test('whose keeper had been killed can be waited for and cancelled', options, async (t) => {
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
    'whose root had exited, and whose descendants were declared, knows how it exited',
    posixOnly(NO_FIFOS, options),
    async (t) => {
      const line = 'exec 3>"$2"; "$1" "$2" & printf r >&3; read -r code <"$3"; exit "$code"'
      let told
      const tree = {
        ready: 2,
        command: (path) => {
          told = `${path}-told`
          execFileSync('mkfifo', [told])
          return ['sh', ['-c', line, 'sh', program('stays'), path, told]]
        },
      }
      const { next, pid, runId, witness } = await kept(t, { tree, onLeaderExit: 'keep' })
      await writeFile(told, '7\n')
      await gone(pid)
      assertAlive(witness)
      const run = await next.adopt(runId)
      const exit = await run.cancel()
      assertGone(witness)
      assert.deepEqual([exit.exitCode, exit.signal, exit.survivors], [7, null, []])
    },
  )

  test('that ends at the very moment says how', posixOnly(NO_KEEPER, options), async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const runs = []
    while (runs.length < 40) runs.push(await obedient(t, { path, bot }))
    await bot.kill()
    const [{ next }] = runs
    const codes = []
    for (const [index, { runId, witness }] of runs.entries()) {
      writeFileSync(`${witness.path}-told`, '3\n')
      // From "it has not read it yet" to "it has been gone for long".
      const askAt = performance.now() + index / 10
      while (performance.now() < askAt);
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

  test('keeps its bot alive as long as somebody waits', options, async (t) => {
    const { bot, path, runId, tell, witness } = await obedient(t)
    await bot.kill()
    const script = inAScript(path, 'adopt and wait', runId)
    // The entry says so before its keeper has agreed.
    await once(script.child.stdout, 'data')
    await tell(3)
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

describe('refused:', together, () => {
  test("a live bot's run", options, async (t) => {
    const { bot, next, runId, witness } = await keeping(t)
    await assert.rejects(next.adopt(runId), { code: 'ERR_OWNED_OWNER_ALIVE' })
    assertAlive(witness)
    assert.equal(await bot.ask('state', runId), 'running')
    // The owner is still the one that hears.
    await bot.ask('cancelRun', runId)
    assertGone(witness)
  })

  test('a run of a bot that is stopped', posixOnly(NO_STOPPING, options), async (t) => {
    const { bot, next, runId, witness } = await keeping(t)
    bot.signal('SIGSTOP')
    await assert.rejects(next.adopt(runId), { code: 'ERR_OWNED_OWNER_ALIVE' })
    assertAlive(witness)
  })

  test('one that there is not', options, async (t) => {
    const { next } = await kept(t)
    await assert.rejects(next.adopt('another'), { code: 'ERR_OWNED_NOT_FOUND' })
    await assert.rejects(supervise(freshRegistry()).adopt('run'), { code: 'ERR_OWNED_NOT_FOUND' })
  })

  test('our own', options, async (t) => {
    const here = supervise(freshRegistry())
    const witness = openWitness(t)
    const run = here.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
    await witness.ready(1)
    await assert.rejects(here.adopt(run.runId), { code: 'ERR_OWNED_ALREADY_OWNED' })
    await run.cancel()
  })

  test('what is no run id', options, async () => {
    const here = supervise(freshRegistry())
    for (const nonsense of [undefined, null, 7, {}]) {
      await assert.rejects(here.adopt(nonsense), { code: 'ERR_INVALID_ARG_TYPE' })
    }
  })

  test('one of two bots that want it at the same time', options, async (t) => {
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
    // The others' death changes nothing for it.
    await Promise.all(bots.filter((_, index) => index !== winner).map((bot) => bot.kill()))
    assertAlive(witness)
    await bots[winner].ask('cancelRun', runId)
    assertGone(witness)
  })

  test('one of two bots that reap and adopt at the same time', options, async (t) => {
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
      `is adopted and cancelled: ${detached ? 'a leader' : 'in a group of its bot'}`,
      posixOnly(!detached && ENDS_WITH_PARENT, options),
      async (t) => {
        const { next, path, pid, runId, witness } = await registered(t, { detached })
        const stranger = await bystander(t)
        const run = await next.adopt(runId)
        assert.equal(run.pid, pid)
        assertAlive(witness)
        const exit = await run.cancel()
        assertGone(witness)
        assert.deepEqual([exit.reason, exit.survivors], ['manual-cancel', []])
        assertAlive(stranger.witness)
        await fileHas(path, 0)
      },
    )
  }

  test('is adopted, and waited for', posixOnly(NO_SESSIONS, options), async (t) => {
    const { next, path, pid, runId, witness } = await registered(t)
    const run = await next.adopt(runId)
    process.kill(-pid, 'SIGKILL')
    const exit = await run.wait()
    assertGone(witness)
    // Only a parent learns how.
    assert.deepEqual([exit.exitCode, exit.signal, exit.survivors], [null, null, []])
    await fileHas(path, 0)
  })

  test("is adopted by reapOrphans({ policy: 'adopt' }), and cancelled by pid", options, async (t) => {
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
