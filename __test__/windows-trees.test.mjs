// What trees can do on Windows, and that none of it helps: whoever is in the job is ended with it. (What they do everywhere:
// hostile-trees.test.mjs and bot-killed.test.mjs.)
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { describe, test } from 'node:test'
import { assertAlive, assertGone, bystander, freshRegistry, startBot, supervise } from './support/bots.mjs'
import { program, script } from './support/fixtures.mjs'
import { isWine, notUnderWine, WINE_KEEPS_NO_LIMITS, windowsOnly } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = windowsOnly({ timeout: 120_000 })
const together = windowsOnly({ timeout: 600_000, concurrency: 2 })
const GRACE_MS = 500
const GONE_MS = 10_000

/** Processes that are ready when the tree stands. */
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

/** Somebody who runs the same program. Not one that is suspended: it would never leave. */
const namesake = (t, name, processes) => bystander(t, name === 'suspended' ? {} : { name, processes })

/** A run of this process, standing, and a bystander that runs the same program. */
async function standing(t, name, ready, more) {
  const stranger = await namesake(t, name, ready)
  const here = supervise(freshRegistry())
  const witness = openWitness(t)
  const child = here.spawnOwned(program(name), [witness.path], { graceMs: GRACE_MS, ...more })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  await witness.ready(ready)
  return { child, here, stranger, witness }
}

/** Nothing of it is left, and nobody else was touched. */
function assertOver({ stranger, witness }, exit, reason) {
  assertGone(witness)
  assertAlive(stranger.witness)
  assert.deepEqual([exit.reason, exit.survivors, exit.escaped], [reason, [], []])
}

describe('a cancel ends, and a bystander of the same name lives on:', together, () => {
  for (const [name, ready] of Object.entries(trees)) {
    test(name, options, async (t) => {
      const run = await standing(t, name, ready, { onLeaderExit: 'keep' })
      assertAlive(run.witness)
      assertOver(run, await run.child.cancel(), 'manual-cancel')
    })
  }
})

describe('a deadline ends', together, () => {
  for (const name of ['ignores-sigterm', 'half-setsid', 'new-console', 'suspended', 'denying-child']) {
    test(name, options, async (t) => {
      const run = await standing(t, name, trees[name], { timeoutMs: 5000 })
      assertOver(run, await run.child.wait(), 'overall-timeout')
    })
  }
})

describe('the exit of the root ends the rest of', together, () => {
  // The one leaves too soon, and the other never.
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

  test('a wrapper that is gone at once', options, async (t) => {
    const witness = openWitness(t)
    const child = supervise(freshRegistry()).spawnOwned(program('wrapper-leaves'), [witness.path])
    const { reason, exitCode, survivors } = await child.wait()
    witness.release()
    assertGone(witness)
    assert.deepEqual([reason, exitCode, survivors], ['exit', 0, []])
  })

  test('one that somebody else has terminated', options, async (t) => {
    const run = await standing(t, 'half-setsid', 33)
    process.kill(run.child.pid, 'SIGKILL')
    const exit = await run.child.wait()
    // Only whoever terminates knows that it was no exit.
    assertOver(run, exit, 'exit')
    assert.deepEqual([exit.exitCode, exit.signal], [1, null])
  })
})

describe('the end of the bot, by TerminateProcess,', together, () => {
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

    // Without its root nothing holds the job any more.
    if (name === 'wrapper-leaves') continue
    test(`leaves ${name} alone if it was to be kept, and the next bot ends all of it`, options, async (t) => {
      const path = freshRegistry()
      const bot = await startBot(t, path)
      const witness = openWitness(t)
      const wish = { graceMs: GRACE_MS, onOwnerExit: 'keep' }
      const { pid } = await bot.ask('spawn', program(name), [witness.path], wish)
      await witness.ready(ready)
      await bot.kill()
      assertAlive(witness)
      const { killed, failed } = await supervise(path).reapOrphans()
      assertGone(witness)
      assert.deepEqual([killed, failed], [[pid], []])
    })
  }

  test('while it starts runs leaves none', options, async (t) => {
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

test('nobody breaks away from the job', options, async (t) => {
  const run = await standing(t, 'breaks-away', 1, { stdio: ['pipe', 'pipe', 'inherit'] })
  const [said] = await once(run.child.stdout, 'data')
  // ERROR_ACCESS_DENIED. Wine knows nothing of breaking away: whoever asks for it is started, in the job.
  assert.match(String(said), isWine ? /^(refused 5|left 0)\s*$/ : /^refused 5\s*$/)
  assertOver(run, await run.child.cancel(), 'manual-cancel')
})

describe('a root that nobody may open, to end it or to look at it,', together, () => {
  const name = 'denies-everybody'
  const MAY_DEBUG = 'who may debug every process, as administrators in PowerShell, is denied nothing'

  /** Whether it is denied to us, too. */
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

  test('is left alone by the next bot, which cannot know who it is', options, async (t) => {
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
    assert.match(skipped[0].reason, /cannot be told/)
    assert.equal(next.list().length, 1)
  })
})

describe('limits: a run gets', together, () => {
  /** One that takes what it can get, and how much that was. */
  async function greedy(t, name, limits) {
    const witness = openWitness(t)
    const { spawnOwned } = supervise(freshRegistry(), { graceMs: GRACE_MS })
    const child = spawnOwned(program(name), [witness.path], { limits })
    t.after(() => child.cancel({ signal: 'SIGKILL' }))
    const [line] = await once(createInterface(child.stdout), 'line')
    return { child, got: Number(line), witness }
  }

  test('no more processes than it may have', notUnderWine(WINE_KEEPS_NO_LIMITS, options), async (t) => {
    const { child, got, witness } = await greedy(t, 'wants-processes', { processes: 4 })
    await witness.ready(got)
    // The server of a console may be one of the four.
    assert.ok(got >= 2 && got <= 4, `${got} processes`)
    const { processes } = await child.usage()
    assert.ok(processes <= 4, `${processes} processes`)
    await child.cancel()
    assertGone(witness)
  })

  test('no more memory than it may have', notUnderWine(WINE_KEEPS_NO_LIMITS, options), async (t) => {
    const most = 256 << 20
    const { child, got, witness } = await greedy(t, 'wants-memory', { memoryBytes: most })
    await witness.ready(1)
    assert.ok(got > most / 4 && got < most, `${got} bytes`)
    await child.cancel()
    assertGone(witness)
  })
})

test('a command inherits its own streams, and no other handle that can be inherited', options, async (t) => {
  const [handedDown, witness] = [openWitness(t), openWitness(t)]
  const bot = [process.execPath, script('bot-leaves-a-run.mjs'), program('stays'), witness.path]
  const path = freshRegistry()
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: path }
  const args = [handedDown.path, ...bot]
  const starter = spawn(program('hands-down'), args, { env, stdio: ['pipe', 'ignore', 'inherit'] })
  await witness.ready(1)
  // The bot has inherited it, and so can pass it on.
  handedDown.release()
  assertAlive(handedDown)
  starter.stdin.end()
  await handedDown.gone(GONE_MS)
  assertAlive(witness)
  await supervise(path).reapOrphans()
  assertGone(witness)
})

describe('a bot that is a run itself', together, () => {
  /** It has a run of its own, in a job within ours. */
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

  test('is ended with all it has', options, async (t) => {
    const { child, witness } = await nested(t)
    const { reason, survivors } = await child.cancel()
    assertGone(witness)
    assert.deepEqual([reason, survivors], ['manual-cancel', []])
  })

  test('takes all it has with it', options, async (t) => {
    const { child, witness } = await nested(t)
    process.kill(child.pid, 'SIGKILL')
    const { survivors } = await child.wait()
    assertGone(witness)
    assert.deepEqual(survivors, [])
  })
})

test('usage() counts all of the job', options, async (t) => {
  const { child } = await standing(t, 'half-setsid', 33)
  const { processes, rssBytes } = await child.usage()
  assert.equal(processes, 33)
  assert.ok(rssBytes > 0, `${rssBytes} bytes`)
})
