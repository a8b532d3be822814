// Hostile trees on Windows: every process in the job is ended with the job.
// (hostile-trees.test.mjs and bot-killed.test.mjs have the trees of all systems.)
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { assertAlive, assertGone, bystander, freshRegistry, startBot, supervise } from '../support/bots.mjs'
import { assert, describe, openWitness, program, script, test } from '../support/prelude.mjs'
import { isWine, notUnderWine, WINE_KEEPS_NO_LIMITS, windowsOnly } from '../support/system.mjs'

const options = windowsOnly({ timeout: 120_000 })
const together = windowsOnly({ timeout: 600_000, concurrency: 2 })
const GRACE_MS = 500
const GONE_MS = 10_000

/** Number of processes that are ready when the tree is complete. */
const trees = {
  'tree-of-31': 31,
  'wrapper-leaves': 2,
  'ignores-sigterm': 2,
  'half-setsid': 33,
  'double-fork-daemon': 2,
  'cleared-environment': 2,
  'new-console': 3,
  suspended: 2,
  'denying-child': 2,
}

/** A bystander with the same program. Not a suspended one, because it would never exit. */
const namesake = (t, name, processes) => bystander(t, name === 'suspended' ? {} : { name, processes })

/** Starts a run and a bystander with the same program; waits until both are ready. */
async function standing(t, name, ready, more) {
  const stranger = await namesake(t, name, ready)
  const here = supervise(freshRegistry())
  const witness = openWitness(t)
  const child = here.spawnOwned(program(name), [witness.path], { graceMs: GRACE_MS, ...more })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  await witness.ready(ready)
  return { child, here, stranger, witness }
}

/** Asserts that no process of the run is left and that the bystander is alive. */
function assertOver({ stranger, witness }, exit, reason) {
  assertGone(witness)
  assertAlive(stranger.witness)
  assert.deepEqual([exit.reason, exit.survivors, exit.escaped], [reason, [], []])
}

describe('a cancel ends the tree, and a bystander with the same program lives on:', together, () => {
  for (const [name, ready] of Object.entries(trees)) {
    test(name, options, async (t) => {
      const run = await standing(t, name, ready, { onLeaderExit: 'keep' })
      assertAlive(run.witness)
      assertOver(run, await run.child.cancel(), 'manual-cancel')
    })
  }
})

describe('a timeout ends', together, () => {
  for (const name of ['ignores-sigterm', 'half-setsid', 'new-console', 'suspended', 'denying-child']) {
    test(name, options, async (t) => {
      const run = await standing(t, name, trees[name], { timeoutMs: 5000 })
      assertOver(run, await run.child.wait(), 'overall-timeout')
    })
  }
})

describe('the exit of the root ends the rest of', together, () => {
  // The root of the first exits too soon, and the root of the second never exits.
  const { 'wrapper-leaves': _, suspended: __, ...staying } = trees
  for (const [name, ready] of Object.entries(staying)) {
    test(name, options, async (t) => {
      const run = await standing(t, name, ready)
      run.child.stdin.end()
      const exit = await run.child.wait()
      assertOver(run, exit, 'exit')
      assert.equal(exit.exitCode, 0)
    })
  }

  test('a wrapper that exits at once', options, async (t) => {
    const witness = openWitness(t)
    const child = supervise(freshRegistry()).spawnOwned(program('wrapper-leaves'), [witness.path])
    const { reason, exitCode, survivors } = await child.wait()
    witness.release()
    assertGone(witness)
    assert.deepEqual([reason, exitCode, survivors], ['exit', 0, []])
  })

  test('a tree whose root another process has terminated', options, async (t) => {
    const run = await standing(t, 'half-setsid', 33)
    process.kill(run.child.pid, 'SIGKILL')
    const exit = await run.child.wait()
    // Windows does not record that another process terminated it: this looks like an exit.
    assertOver(run, exit, 'exit')
    assert.deepEqual([exit.exitCode, exit.signal], [1, null])
  })
})

describe('TerminateProcess of the bot', together, () => {
  for (const [name, ready] of Object.entries(trees)) {
    test(`ends ${name}`, options, async (t) => {
      const stranger = await namesake(t, name, ready)
      const bot = await startBot(t, freshRegistry())
      const witness = openWitness(t)
      await bot.ask('spawn', program(name), [witness.path], { onLeaderExit: 'keep' })
      await witness.ready(ready)
      await bot.kill()
      await witness.gone(GONE_MS)
      assertAlive(stranger.witness)
    })

    // Without its root no process holds a handle of the job.
    if (name === 'wrapper-leaves') continue
    test(`leaves ${name} alive if the run is kept, and the next bot ends all of it`, options, async (t) => {
      const path = freshRegistry()
      const bot = await startBot(t, path)
      const witness = openWitness(t)
      const keep = { graceMs: GRACE_MS, onOwnerExit: 'keep' }
      const { pid } = await bot.ask('spawn', program(name), [witness.path], keep)
      await witness.ready(ready)
      await bot.kill()
      assertAlive(witness)
      const { killed, failed } = await supervise(path).reapOrphans()
      assertGone(witness)
      assert.deepEqual([killed, failed], [[pid], []])
    })
  }

  test('while it starts runs leaves no process', options, async (t) => {
    const witness = openWitness(t)
    for (let round = 0; round < 5; round++) {
      const bot = await startBot(t, freshRegistry())
      await assert.rejects(bot.ask('spawnAndDie', 3, program('stays'), [witness.path]))
      await bot.ended
    }
    witness.release()
    await witness.gone(GONE_MS)
  })
})

test('no process breaks away from the job', options, async (t) => {
  const run = await standing(t, 'breaks-away', 1, { stdio: ['pipe', 'pipe', 'inherit'] })
  const [said] = await once(run.child.stdout, 'data')
  // ERROR_ACCESS_DENIED. Wine ignores CREATE_BREAKAWAY_FROM_JOB and starts the process in the job.
  assert.match(String(said), isWine ? /^(refused 5|left 0)\s*$/ : /^refused 5\s*$/)
  assertOver(run, await run.child.cancel(), 'manual-cancel')
})

describe('a root process that no other process may open', together, () => {
  const name = 'denies-all-access'
  const MAY_DEBUG =
    'this user may debug every process, like an administrator in PowerShell, so no access is denied'

  /** Whether this process may not open it either. */
  function isDenied(pid) {
    try {
      return !process.kill(pid, 0)
    } catch ({ code }) {
      return code === 'EPERM'
    }
  }

  test('is ended through its job', options, async (t) => {
    const run = await standing(t, name, 2)
    if (!isDenied(run.child.pid)) return t.skip(MAY_DEBUG)
    assertOver(run, await run.child.cancel(), 'manual-cancel')
  })

  test('is not ended by the next bot, which cannot identify it', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const { pid } = await bot.ask('spawn', program(name), [witness.path], { onOwnerExit: 'keep' })
    await witness.ready(2)
    if (!isDenied(pid)) return t.skip(MAY_DEBUG)
    await bot.kill()
    const next = supervise(path)
    const { killed, skipped } = await next.reapOrphans()
    assertAlive(witness)
    assert.deepEqual([killed, skipped.map((entry) => entry.pid)], [[], [pid]])
    assert.match(skipped[0].reason, /cannot be verified/)
    assert.equal(next.list().length, 1)
  })
})

describe('with limits, a run gets', together, () => {
  /** A run that takes as much as it can get, and the amount it got. */
  async function greedy(t, name, limits) {
    const witness = openWitness(t)
    const { spawnOwned } = supervise(freshRegistry(), { graceMs: GRACE_MS })
    const child = spawnOwned(program(name), [witness.path], { limits })
    t.after(() => child.cancel({ signal: 'SIGKILL' }))
    const [line] = await once(createInterface(child.stdout), 'line')
    return { child, got: Number(line), witness }
  }

  test('no more processes than its limit', notUnderWine(WINE_KEEPS_NO_LIMITS, options), async (t) => {
    const { child, got, witness } = await greedy(t, 'wants-processes', { processes: 4 })
    await witness.ready(got)
    // The console host may be one of the four.
    assert.ok(got >= 2 && got <= 4, `${got} processes`)
    const { processes } = await child.usage()
    assert.ok(processes <= 4, `${processes} processes`)
    await child.cancel()
    assertGone(witness)
  })

  test('no more memory than its limit', notUnderWine(WINE_KEEPS_NO_LIMITS, options), async (t) => {
    const most = 256 << 20
    const { child, got, witness } = await greedy(t, 'wants-memory', { memoryBytes: most })
    await witness.ready(1)
    assert.ok(got > most / 4 && got < most, `${got} bytes`)
    await child.cancel()
    assertGone(witness)
  })
})

test('a command inherits its own streams, and no other inheritable handle', options, async (t) => {
  const [handedDown, witness] = [openWitness(t), openWitness(t)]
  const bot = [process.execPath, script('bot-leaves-a-run.mjs'), program('stays'), witness.path]
  const path = freshRegistry()
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: path }
  const args = [handedDown.path, ...bot]
  const starter = spawn(program('hands-down'), args, { env, stdio: ['pipe', 'ignore', 'inherit'] })
  await witness.ready(1)
  // The bot has inherited the handle, so it could pass it on.
  handedDown.release()
  assertAlive(handedDown)
  starter.stdin.end()
  await handedDown.gone(GONE_MS)
  assertAlive(witness)
  await supervise(path).reapOrphans()
  assertGone(witness)
})

describe('a bot that is a run itself', together, () => {
  /** A run that is a bot with its own run, in a nested job. */
  async function nested(t) {
    const here = supervise(freshRegistry(), { graceMs: GRACE_MS })
    const witness = openWitness(t)
    const args = [script('nested-bot.mjs'), program('half-setsid'), witness.path]
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() }
    const child = here.spawnOwned(process.execPath, args, { env, stdio: 'ignore' })
    t.after(() => child.cancel({ signal: 'SIGKILL' }))
    await witness.ready(33)
    return { child, witness }
  }

  test('is cancelled together with its runs', options, async (t) => {
    const { child, witness } = await nested(t)
    const { reason, survivors } = await child.cancel()
    assertGone(witness)
    assert.deepEqual([reason, survivors], ['manual-cancel', []])
  })

  test('ends its runs when it is terminated', options, async (t) => {
    const { child, witness } = await nested(t)
    process.kill(child.pid, 'SIGKILL')
    const { survivors } = await child.wait()
    assertGone(witness)
    assert.deepEqual(survivors, [])
  })
})

test('usage() counts all processes of the job', options, async (t) => {
  const { child } = await standing(t, 'half-setsid', 33)
  const { processes, rssBytes } = await child.usage()
  assert.equal(processes, 33)
  assert.ok(rssBytes > 0, `${rssBytes} bytes`)
})
