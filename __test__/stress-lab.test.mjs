// The parts of the stress lab that decide: what a round does, what must be true of it, and how a failure is made short. The lab itself is
// `npm run stress`, see docs/stress.md.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { roundSeed } from '../scripts/stress/lab/dice.mjs'
import { invariants, violationsOf } from '../scripts/stress/lab/invariants.mjs'
import { moveNamed, moves } from '../scripts/stress/lab/moves.mjs'
import { playInNamespace, unavailable } from '../scripts/stress/lab/namespace.mjs'
import { partOf, planFor } from '../scripts/stress/lab/plan.mjs'
import { failureOf, traceOf } from '../scripts/stress/lab/report.mjs'
import { shrink, triesFor } from '../scripts/stress/lab/shrink.mjs'
import { isLinux } from './support/system.mjs'

const seeds = Array.from({ length: 300 }, (_, index) => roundSeed(42, index))
const onLinux = { skip: !isLinux && 'the lab is played on Linux only' }

describe('a plan', onLinux, () => {
  test('is the same for the same seed, and another for another', () => {
    assert.deepEqual(planFor(seeds[0]), planFor(seeds[0]))
    assert.notDeepEqual(planFor(seeds[0]), planFor(seeds[1]))
    assert.equal(new Set(seeds).size, seeds.length)
  })

  test('can be written down and told', () => {
    for (const plan of seeds.map(planFor)) {
      assert.deepEqual(JSON.parse(JSON.stringify(plan)), plan)
      assert.equal(traceOf(plan).split('\n').length, plan.steps.length)
      assert.doesNotMatch(traceOf(plan), /undefined|\[object/)
    }
  })

  test('begins with a bot, and every move comes up in some', () => {
    const steps = seeds.flatMap((seed) => planFor(seed).steps)
    for (const seed of seeds) assert.equal(planFor(seed).steps[0].do, 'start')
    const missing = moves.filter(({ name }) => !steps.some((step) => step.do === name))
    assert.deepEqual(missing, [])
  })

  test('speaks only of bots and runs that an earlier step has brought', () => {
    for (const { seed, steps } of seeds.map(planFor)) {
      const known = new Set()
      for (const { do: what, bot, by, run } of steps) {
        if (what === 'start') known.add(bot)
        if (what === 'spawn' || what === 'register') known.add(run)
        for (const name of [bot, by, run].filter(Boolean)) assert.ok(known.has(name), `${name} in ${seed}`)
      }
    }
  })

  test('keeps the numbers of its steps in every part', () => {
    const plan = planFor(seeds[0])
    assert.deepEqual(
      partOf(plan, [0, 3]).steps.map(({ number }) => number),
      [0, 3],
    )
    assert.equal(new Set(moves.map(({ name }) => name)).size, moves.length)
    for (const { do: name } of plan.steps) assert.ok(moveNamed(name))
  })
})

const run = {
  name: 'run-a',
  bot: 'A',
  what: 'stays',
  options: {},
  isKept: false,
  isRegistered: false,
  isStranger: false,
  hasBegun: true,
  traceable: true,
  hasEscapees: false,
  causes: ['cancel'],
  lost: [],
  keeperStopped: false,
  registryLost: false,
  exits: [],
}
const exit = {
  by: 'A',
  reason: 'manual-cancel',
  exitCode: null,
  signal: 'SIGTERM',
  durationMs: 100,
  timedOut: false,
  noOutputTimedOut: false,
}
const claim = {
  hasBegun: true,
  who: 'wait() of A',
  run: 'run-a',
  reason: 'manual-cancel',
  survivors: 0,
  isGone: true,
  step: 3,
}
const decision = { runId: 'run-a', pid: 4711, outcome: 'ended', isGone: true }
const report = { by: 'B', step: 4, dryRun: false, alive: ['run-a'], decisions: [decision] }
const order = { bot: 'A', order: 'cancel', step: 2, outcome: 'done' }
const bot = { name: 'A', expected: undefined, how: undefined, complaint: '' }
const size = { fds: 24, threads: 14, zombies: 0, helpers: 3, rssKb: 50_000 }
const calm = {
  runs: [{ ...run, exits: [exit] }],
  strangers: [{ who: 'no cookie', pid: 7 }],
  bots: [bot],
  orders: [order],
  claims: [claim],
  reports: [report],
  kills: [{ by: 'B', run: 'run-a' }],
  undelivered: [],
  reads: { count: 9, invalid: [] },
  final: {
    overlooked: [],
    alone: [],
    survivors: [],
    entries: [],
    processes: [],
    log: ['… KILLED pid=4711 cmd=…'],
  },
}
const runs = (more, ...exits) => ({ runs: [{ ...run, ...more, exits }] })
const beyondReach = { lost: ['keeper', 'zygote'], traceable: false }

/** What breaks which invariant; each of them is seen to fail. */
const broken = [
  ['no survivor', 'said to be over, and alive', { claims: [{ ...claim, isGone: false }] }],
  [
    'no survivor',
    'reported as ended, and alive',
    { reports: [{ ...report, decisions: [{ ...decision, isGone: false }] }] },
  ],
  [
    'no survivor',
    'left by a bot whose keepers live',
    { final: { ...calm.final, alone: [{ run: 'run-a', who: 'x' }] } },
  ],
  [
    'no survivor',
    'there after everything',
    { final: { ...calm.final, survivors: [{ run: 'run-a', who: 'x' }] } },
  ],
  ['no survivor', 'somebody whom nobody knows', { final: { ...calm.final, processes: ['7 (keeper)'] } }],
  ['no bystander', 'a stranger', { strangers: [{ who: 'no cookie', pid: 7, endedAt: 2 }] }],
  ['no bystander', 'one that was unregistered', runs({ isStranger: true, endedAt: 3, causes: [] })],
  ['no process without a record', 'alive and not in the file', runs({ unrecorded: 'alive' })],
  [
    'no record without a decision',
    'in the file after everything',
    { final: { ...calm.final, entries: ['run-a'] } },
  ],
  [
    'no record without a decision',
    'alive, and the report is silent',
    { reports: [{ ...report, decisions: [] }] },
  ],
  ['no record without a decision', 'killed, and the log is silent', { final: { ...calm.final, log: [] } }],
  [
    'no record without a decision',
    'alive, and somebody watches for such',
    { final: { ...calm.final, overlooked: [{ bot: 'A', run: 'run-a' }] } },
  ],
  ['killed once', 'by two reports', { reports: [report, report] }],
  ['killed once', 'by one that reaps, and one that watches', { kills: [{ by: 'A', run: 'run-a' }] }],
  ['killed once', 'by one that watches, twice', { reports: [], kills: [calm.kills[0], calm.kills[0]] }],
  ['the registry is valid whenever it is read', 'half a file', { reads: { count: 1, invalid: ['half'] } }],
  ['reasons are true', 'another than what was done', runs({}, { ...exit, reason: 'exit', exitCode: 0 })],
  ['reasons are true', 'nothing was done', runs({ causes: [] }, exit)],
  [
    'reasons are true',
    'an escape of nobody',
    runs({ causes: ['root left'] }, { ...exit, reason: 'ownership-escape' }),
  ],
  [
    'reasons are true',
    'an exit without a code',
    runs({ causes: ['root left'] }, { ...exit, reason: 'exit' }),
  ],
  [
    'reasons are true',
    'a signal without a name',
    runs({ causes: ['root killed'] }, { ...exit, reason: 'signal', signal: null }),
  ],
  [
    'reasons are true',
    'a deadline before its time',
    runs(
      { causes: ['deadline'], options: { timeoutMs: 200 } },
      { ...exit, reason: 'overall-timeout', timedOut: true },
    ),
  ],
  [
    'reasons are true',
    'a deadline that was moved, and came at its old time',
    runs(
      { causes: ['deadline'], options: { timeoutMs: 50 }, extendedMs: 100 },
      { ...exit, reason: 'overall-timeout', timedOut: true },
    ),
  ],
  ['reasons are true', 'a flag that does not fit', runs({}, { ...exit, timedOut: true })],
  ['signals and words arrive', 'a run that was stopped, and goes on', { undelivered: ['run-a goes on'] }],
  [
    'signals and words arrive',
    'a word that was lost',
    runs({ causes: ['root left'], says: 100, said: 99 }, { ...exit, reason: 'exit', exitCode: 0 }),
  ],
  [
    'orders are answered, and refused with a code',
    'no answer',
    { orders: [{ ...order, outcome: 'unanswered' }] },
  ],
  [
    'orders are answered, and refused with a code',
    'an error of no kind',
    { orders: [{ ...order, outcome: 'refused', code: undefined, message: 'x is not a function' }] },
  ],
  [
    'bots stay as they are',
    'descriptors that are never closed',
    { bots: [{ ...bot, before: size, after: { ...size, fds: 25 } }] },
  ],
  ['bots live until they are ended', 'one that crashed', { bots: [{ ...bot, how: [null, 'SIGSEGV'] }] }],
]

describe('of the invariants', () => {
  test('none is broken by a round in which all is well', () => assert.deepEqual(violationsOf(calm), []))

  for (const [name, what, facts] of broken)
    test(`“${name}” is, by: ${what}`, () => {
      const found = violationsOf({ ...calm, ...facts })
      assert.deepEqual([...new Set(found.map(({ invariant }) => invariant))], [name], JSON.stringify(found))
    })

  test('each was seen to be broken', () =>
    assert.deepEqual(
      [...new Set(broken.map(([name]) => name))],
      invariants.map(({ name }) => name),
    ))

  const allowed = [
    [
      'what nobody can find any more',
      { ...runs(beyondReach), final: { ...calm.final, survivors: [{ run: 'run-a', who: 'x' }] } },
    ],
    [
      'a keeper that was stopped, and killed by who asked it',
      runs({ keeperStopped: true }, { ...exit, reason: 'lost' }),
    ],
    [
      'an answer that a killed bot owes',
      { orders: [{ ...order, outcome: 'unanswered' }], bots: [{ ...bot, expected: 'kill' }] },
    ],
    ['words that its end has cut off', runs({ says: 100, said: 99 }, exit)],
    [
      'what libuv watches files with',
      { bots: [{ ...bot, before: size, after: { ...size, fds: 25 }, hasWatched: true }] },
    ],
    ['a command that never began', { claims: [{ ...claim, hasBegun: false, isGone: false }] }],
    ['a log that could not be written', { final: { ...calm.final, log: [], couldNotLog: true } }],
    [
      'a zygote that was killed, and is waited for when the next one is needed',
      { bots: [{ ...bot, before: size, after: { ...size, zombies: 1, fds: 23 }, hasLostZygote: true }] },
    ],
    ['an error with a code', { orders: [{ ...order, outcome: 'refused', code: 'ERR_OWNED_NOT_FOUND' }] }],
    ['an end of a bot that was ended', { bots: [{ ...bot, expected: 'kill', how: [null, 'SIGKILL'] }] }],
  ]
  for (const [what, facts] of allowed)
    test(`none is broken by ${what}`, () => assert.deepEqual(violationsOf({ ...calm, ...facts }), []))
})

describe('the shortest part that fails', () => {
  const numbers = Array.from({ length: 20 }, (_, index) => index)
  const needs = (culprits) => async (part) => culprits.every((culprit) => part.includes(culprit))

  for (const culprits of [[0], [19], [3, 4], [0, 19], [2, 9, 17], [1, 5, 6, 12, 18], numbers])
    test(`is exactly ${culprits.length === 20 ? 'all of it' : culprits}`, async () =>
      assert.deepEqual(await shrink(numbers, needs(culprits)), culprits))

  test('is the whole, if no part fails', async () =>
    assert.deepEqual(await shrink(numbers, async () => false), numbers))

  test('is what was found when time is up', async () => {
    let left = 1
    const isOver = () => left-- <= 0
    const found = await shrink(numbers, needs([3]), { isOver })
    assert.ok(found.includes(3) && found.length > 1, `${found}`)
  })
})

test('what fails seldom is played more often before it counts as harmless, and what never fails again not at all', () => {
  assert.deepEqual(
    [6, 5, 3, 1, 0].map((failed) => triesFor(failed, 6)),
    [2, 2, 4, 12, 0],
  )
})

describe('a round in a namespace of its own', { skip: unavailable ?? false }, () => {
  const streams = ['ignore', 'ignore', 'ignore', 'witness']
  const options = { graceMs: 50 }
  const spawn = { do: 'spawn', bot: 'A', what: 'half-setsid', options, streams, awaited: true }
  const setting = { pids: { first: 1000, last: 30_000 }, ownSession: true, curtain: 'shutdown' }

  /** The facts of a round in which all is well. */
  async function play(moves, more) {
    const steps = moves.map((step, number) => ({ number, ...step }))
    const { facts, trouble } = await playInNamespace({ seed: 0, setting: { ...setting, ...more }, steps })
    assert.equal(trouble, undefined)
    assert.deepEqual(violationsOf(facts), [])
    return facts
  }

  test('tells what has happened', async () => {
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
    // What its own bot says of run-a may come too late.
    const [claim] = facts.claims.filter(({ who }) => who === 'cancel() of B')
    assert.deepEqual([claim.run, claim.reason, claim.isGone], ['run-a', 'manual-cancel', true])
    const decision = facts.reports.at(-1).decisions.find(({ runId }) => runId === 'run-b')
    assert.deepEqual([decision.outcome, decision.isGone], ['ended', true])
    assert.deepEqual(
      facts.played.filter(({ isMoot }) => isMoot).map(({ number }) => number),
      [6],
    )
    assert.equal(facts.strangers.length, 6)
    assert.ok(facts.reads.count > 0)
  })

  test('has pauses, deadlines that are moved, terminals, the command line and watches', async () => {
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

test('a failure is told with seed, trace and the command that plays it again', onLinux, () => {
  const whole = planFor(seeds[2])
  const violations = [{ invariant: 'no survivor', what: 'run-a is alive:\n  pid 7' }]
  const text = failureOf(partOf(whole, [0, 2]), { violations, whole })
  assert.match(text, new RegExp(`seed ${whole.seed}: no survivor`))
  assert.match(text, /bot A starts/)
  assert.match(text, new RegExp(`npm run stress -- --replay ${whole.seed} --steps 0,2`))
})
