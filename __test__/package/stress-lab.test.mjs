// The pure parts of the stress lab: the plan of a round, and the reduction of a failure. `npm run
// stress` runs the lab itself: see docs/stress.md.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { roundSeed } from '../../scripts/stress/lab/dice.mjs'
import { violationsOf } from '../../scripts/stress/lab/invariants.mjs'
import { BRINGS_RUNS, moveNamed, moves } from '../../scripts/stress/lab/moves.mjs'
import { playInNamespace, unavailable } from '../../scripts/stress/lab/namespace.mjs'
import { partOf, planFor } from '../../scripts/stress/lab/plan.mjs'
import { failureOf, traceOf } from '../../scripts/stress/lab/report.mjs'
import { shrink, triesFor } from '../../scripts/stress/lab/shrink.mjs'
import { LOOPS } from '../../scripts/stress/loops.mjs'
import { savedFindings, saveFinding } from '../../scripts/stress/regressions.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { isLinux } from '../support/system.mjs'

const seeds = Array.from({ length: 300 }, (_, index) => roundSeed(42, index))
const onLinux = { skip: !isLinux && 'the lab is played on Linux only' }

describe('a plan', onLinux, () => {
  test('depends only on its seed', () => {
    assert.deepEqual(planFor(seeds[0]), planFor(seeds[0]))
    assert.notDeepEqual(planFor(seeds[0]), planFor(seeds[1]))
    assert.equal(new Set(seeds).size, seeds.length)
  })

  test('can be saved as JSON and printed', () => {
    for (const plan of seeds.map(planFor)) {
      assert.deepEqual(JSON.parse(JSON.stringify(plan)), plan)
      assert.equal(traceOf(plan).split('\n').length, plan.steps.length)
      assert.doesNotMatch(traceOf(plan), /undefined|\[object/)
    }
  })

  test('starts with a bot, and every move occurs in some plan', () => {
    const steps = seeds.flatMap((seed) => planFor(seed).steps)
    for (const seed of seeds) assert.equal(planFor(seed).steps[0].do, 'start')
    const missing = moves.filter(({ name }) => !steps.some((step) => step.do === name))
    assert.deepEqual(missing, [])
  })

  test('names only bots and runs that an earlier step has started', () => {
    for (const { seed, steps } of seeds.map(planFor)) {
      const known = new Set()
      for (const { do: what, bot, by, run } of steps) {
        if (what === 'start') known.add(bot)
        if (BRINGS_RUNS.includes(what)) known.add(run)
        for (const name of [bot, by, run].filter(Boolean)) assert.ok(known.has(name), `${name} in ${seed}`)
      }
    }
  })

  test('keeps the step numbers in every part', () => {
    const plan = planFor(seeds[0])
    assert.deepEqual(
      partOf(plan, [0, 3]).steps.map(({ number }) => number),
      [0, 3],
    )
    assert.equal(new Set(moves.map(({ name }) => name)).size, moves.length)
    for (const { do: name } of plan.steps) assert.ok(moveNamed(name))
  })
})

describe('shrink returns', () => {
  const numbers = Array.from({ length: 20 }, (_, index) => index)
  const needs = (culprits) => async (part) => culprits.every((culprit) => part.includes(culprit))

  for (const culprits of [[0], [19], [3, 4], [0, 19], [2, 9, 17], [1, 5, 6, 12, 18], numbers])
    test(`exactly the steps that fail: ${culprits.length === 20 ? 'all' : culprits}`, async () =>
      assert.deepEqual(await shrink(numbers, needs(culprits)), culprits))

  test('the whole plan if no part fails', async () =>
    assert.deepEqual(await shrink(numbers, async () => false), numbers))

  test('the shortest part found when the time is up', async () => {
    let left = 1
    const isOver = () => left-- <= 0
    const found = await shrink(numbers, needs([3]), { isOver })
    assert.ok(found.includes(3) && found.length > 1, `${found}`)
  })
})

test('triesFor grows as failures get rarer, and is 0 for a failure that never returns', () => {
  assert.deepEqual(
    [6, 5, 3, 1, 0].map((failed) => triesFor(failed, 6)),
    [2, 2, 4, 12, 0],
  )
})

describe('a round in its own namespace', { skip: unavailable ?? false }, () => {
  const streams = ['ignore', 'ignore', 'ignore', 'witness']
  const options = { graceMs: 50 }
  const spawn = { do: 'spawn', bot: 'A', what: 'half-setsid', options, streams, awaited: true }
  const setting = { pids: { first: 1000, last: 30_000 }, ownSession: true, curtain: 'shutdown' }

  /** Plays a round, asserts that it breaks no invariant, and returns its facts. */
  async function play(moves, more) {
    const steps = moves.map((step, number) => ({ number, ...step }))
    const { facts, trouble } = await playInNamespace({ seed: 0, setting: { ...setting, ...more }, steps })
    assert.equal(trouble, undefined)
    assert.deepEqual(violationsOf(facts), [])
    return facts
  }

  test('returns what has happened', async () => {
    const facts = await play(
      [
        { do: 'start', bot: 'A', isWarm: true },
        { ...spawn, run: 'run-a' },
        { ...spawn, run: 'run-b', options: { graceMs: 50, onOwnerExit: 'keep' } },
        { do: 'start', bot: 'B', isWarm: false },
        { do: 'cancel', by: 'B', target: { runId: 'run-a' }, options: {}, awaited: true },
        { do: 'kill-bot', bot: 'A' },
        { do: 'kill-keeper', run: 'run-c' },
      ],
      { lookAlikes: true },
    )
    // The claim of the run's own bot may come too late.
    const [claim] = facts.claims.filter(({ who }) => who === 'cancel() of B')
    assert.deepEqual([claim.run, claim.reason, claim.isGone], ['run-a', 'manual-cancel', true])
    const decision = facts.reports.at(-1).decisions.find(({ runId }) => runId === 'run-b')
    assert.deepEqual([decision.outcome, decision.isGone], ['ended', true])
    assert.deepEqual(
      facts.played.filter(({ isMoot }) => isMoot).map(({ number }) => number),
      [6],
    )
    assert.equal(facts.bystanders.length, 8)
    assert.ok(facts.reads.count > 0)
  })

  test('can contain pauses, extended timeouts, terminals, the command line and watches', async () => {
    const facts = await play(
      [
        { do: 'start', bot: 'A', isWarm: true },
        { ...spawn, run: 'run-a', options: { graceMs: 50, pty: true }, streams: undefined },
        { do: 'pause', run: 'run-a' },
        { do: 'resume', run: 'run-a' },
        { ...spawn, run: 'run-b', what: 'says a megabyte', streams: ['ignore', 'pipe', 'ignore', 'witness'] },
        { do: 'read', run: 'run-b', isOn: true },
        { ...spawn, run: 'run-c', options: { graceMs: 50, timeoutMs: 3000 } },
        { do: 'extend', run: 'run-c', ms: 500, awaited: true },
        { do: 'cli-ps', awaited: true },
        { do: 'cli-cancel', run: 'run-a', awaited: true },
        { do: 'wait', run: 'run-c', ms: 20_000 },
        { ...spawn, run: 'run-d', options: { graceMs: 50, onOwnerExit: 'keep' } },
        { do: 'start', bot: 'B', isWarm: true },
        { do: 'watch', bot: 'B', autoKill: true, intervalMs: 60_000 },
        { do: 'kill-bot', bot: 'A' },
      ],
      { isUnprivileged: true },
    )
    const run = (name) => facts.runs.find((it) => it.name === name)
    const [claim] = facts.claims.filter(({ who }) => who === "the command line's cancel")
    assert.deepEqual([claim.run, claim.reason, claim.isGone], ['run-a', 'manual-cancel', true])
    assert.deepEqual([run('run-b').said, run('run-c').extendedMs], [1_000_000, 500])
    assert.equal(run('run-c').exits[0].reason, 'overall-timeout')
    assert.deepEqual(facts.kills, [{ by: 'B', run: 'run-d' }])
    assert.deepEqual(
      facts.played.filter(({ isMoot }) => isMoot),
      [],
    )
  })
})

describe('a finding', onLinux, () => {
  test('is saved as a file and read back unchanged', (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'findings-'))
    t.after(() => rmSync(folder, { recursive: true }))
    const plan = planFor(seeds[0])
    const round = { found: 'processes exist', loop: 'bot-killed', seed: 42, round: 17 }
    saveFinding({ found: 'no survivor', plan }, folder)
    saveFinding(round, folder)
    assert.deepEqual(savedFindings(folder), [
      { name: 'bot-killed-42-17', ...round },
      { name: `lab-${plan.seed}`, found: 'no survivor', plan },
    ])
  })

  test('that is saved in the repository names moves and loops that exist', () => {
    for (const { name, plan, loop } of savedFindings()) {
      if (plan) assert.doesNotMatch(traceOf(plan), /undefined|\[object/, name)
      else assert.ok(LOOPS.includes(loop), name)
    }
  })
})

test('a failure is printed with seed, trace and the command that repeats it', onLinux, () => {
  const whole = planFor(seeds[2])
  const violations = [{ invariant: 'no survivor', what: 'run-a is alive:\n  pid 7' }]
  const text = failureOf(partOf(whole, [0, 2]), { violations, whole })
  assert.match(text, new RegExp(`seed ${whole.seed}: no survivor`))
  assert.match(text, /bot A starts/)
  assert.match(text, new RegExp(`npm run stress -- --replay ${whole.seed} --steps 0,2`))
})
