// The stress lab finds each violation of an invariant, and none in a correct round.
import { invariants, violationsOf } from '../../scripts/stress/lab/invariants.mjs'
import { assert, describe, test } from '../support/prelude.mjs'

const run = {
  name: 'run-a',
  bot: 'A',
  what: 'stays',
  options: {},
  isKept: false,
  isRegistered: false,
  isBystander: false,
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
  bystanders: [{ who: 'no cookie', pid: 7 }],
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

/** Facts that break an invariant; every invariant occurs. */
const broken = [
  [
    'no survivor',
    'a process that lives after its run was reported as ended',
    { claims: [{ ...claim, isGone: false }] },
  ],
  [
    'no survivor',
    'a process that lives after the reaper reported it as ended',
    { reports: [{ ...report, decisions: [{ ...decision, isGone: false }] }] },
  ],
  [
    'no survivor',
    'a process that lives after its bot died, although the keeper lives',
    { final: { ...calm.final, alone: [{ run: 'run-a', who: 'x' }] } },
  ],
  [
    'no survivor',
    'a process that lives at the end of the round',
    { final: { ...calm.final, survivors: [{ run: 'run-a', who: 'x' }] } },
  ],
  [
    'no survivor',
    'an unknown process at the end of the round',
    { final: { ...calm.final, processes: ['7 (keeper)'] } },
  ],
  [
    'no bystander is ended',
    'a bystander that was ended',
    { bystanders: [{ who: 'no cookie', pid: 7, endedAt: 2 }] },
  ],
  [
    'no bystander is ended',
    'a registered process that no order named',
    runs({ isRegistered: true, endedAt: 3, endedUnasked: true }),
  ],
  [
    'no bystander is ended',
    'a process that was unregistered',
    runs({ isBystander: true, endedAt: 3, endedUnasked: true }),
  ],
  ['no process without a record', 'a live process that is not in the file', runs({ unrecorded: 'alive' })],
  [
    'no record without a decision',
    'an entry at the end of the round',
    { final: { ...calm.final, entries: ['run-a'] } },
  ],
  [
    'no record without a decision',
    'a live run that is not in the report',
    { reports: [{ ...report, decisions: [] }] },
  ],
  [
    'no record without a decision',
    'a killed run that is not in the log',
    { final: { ...calm.final, log: [] } },
  ],
  [
    'no record without a decision',
    'a live orphan that a watch did not detect',
    { final: { ...calm.final, overlooked: [{ bot: 'A', run: 'run-a' }] } },
  ],
  ['killed once', 'two reports of the same kill', { reports: [report, report] }],
  ['killed once', 'a reaper and a watch that report the same kill', { kills: [{ by: 'A', run: 'run-a' }] }],
  [
    'killed once',
    'a watch that reports a kill twice',
    { reports: [], kills: [calm.kills[0], calm.kills[0]] },
  ],
  [
    'the registry is valid whenever it is read',
    'an incomplete file',
    { reads: { count: 1, invalid: ['half'] } },
  ],
  [
    'reasons are true',
    'a reason that differs from the cause',
    runs({}, { ...exit, reason: 'exit', exitCode: 0 }),
  ],
  ['reasons are true', 'a reason without a cause', runs({ causes: [] }, exit)],
  [
    'reasons are true',
    'an escape without an escaped process',
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
    'a timeout that comes too early',
    runs(
      { causes: ['deadline'], options: { timeoutMs: 200 } },
      { ...exit, reason: 'overall-timeout', timedOut: true },
    ),
  ],
  [
    'reasons are true',
    'a timeout that was extended and comes at its old time',
    runs(
      { causes: ['deadline'], options: { timeoutMs: 50 }, extendedMs: 100 },
      { ...exit, reason: 'overall-timeout', timedOut: true },
    ),
  ],
  ['reasons are true', 'a flag that contradicts the reason', runs({}, { ...exit, timedOut: true })],
  ['signals and output arrive', 'a stopped run that goes on', { undelivered: ['run-a goes on'] }],
  [
    'signals and output arrive',
    'output that was lost',
    runs({ causes: ['root left'], says: 100, said: 99 }, { ...exit, reason: 'exit', exitCode: 0 }),
  ],
  [
    'requests are answered or refused with a code',
    'no answer',
    { orders: [{ ...order, outcome: 'unanswered' }] },
  ],
  [
    'requests are answered or refused with a code',
    'an answer after the whole grace period',
    { orders: [{ ...order, tookMs: 60_000 }] },
  ],
  [
    'requests are answered or refused with a code',
    'an error without a code',
    { orders: [{ ...order, outcome: 'refused', code: undefined, message: 'x is not a function' }] },
  ],
  ['no other process blocks a bot', 'a helper that was stopped', { orders: [{ ...order, blockedMs: 5000 }] }],
  [
    'the sockets of a bot are its own',
    'a socket that was shut down',
    { bots: [{ ...bot, deaf: ['/tmp/x'] }] },
  ],
  [
    'bots leak nothing',
    'descriptors that are never closed',
    { bots: [{ ...bot, before: size, after: { ...size, fds: 25 } }] },
  ],
  ['no bot crashes', 'a bot that crashed', { bots: [{ ...bot, how: [null, 'SIGSEGV'] }] }],
]

describe('violationsOf', () => {
  test('finds nothing in a correct round', () => assert.deepEqual(violationsOf(calm), []))

  for (const [name, what, facts] of broken)
    test(`finds a violation of “${name}”: ${what}`, () => {
      const found = violationsOf({ ...calm, ...facts })
      assert.deepEqual([...new Set(found.map(({ invariant }) => invariant))], [name], JSON.stringify(found))
    })

  test('is tested with a violation of each invariant', () =>
    assert.deepEqual(
      [...new Set(broken.map(([name]) => name))],
      invariants.map(({ name }) => name),
    ))

  const allowed = [
    [
      'a survivor that cannot be found',
      { ...runs(beyondReach), final: { ...calm.final, survivors: [{ run: 'run-a', who: 'x' }] } },
    ],
    [
      'a stopped keeper that the cancelling process killed',
      runs({ keeperStopped: true }, { ...exit, reason: 'lost' }),
    ],
    [
      'a missing answer of a killed bot',
      { orders: [{ ...order, outcome: 'unanswered' }], bots: [{ ...bot, expected: 'kill' }] },
    ],
    ['output that the end of the run cut off', runs({ says: 100, said: 99 }, exit)],
    [
      'the descriptor that libuv uses to watch files',
      { bots: [{ ...bot, before: size, after: { ...size, fds: 25 }, hasWatched: true }] },
    ],
    ['a command that was never executed', { claims: [{ ...claim, hasBegun: false, isGone: false }] }],
    ['a log that could not be written', { final: { ...calm.final, log: [], couldNotLog: true } }],
    [
      'a killed zygote that is reaped when the next one starts',
      { bots: [{ ...bot, before: size, after: { ...size, zombies: 1, fds: 23 }, hasLostZygote: true }] },
    ],
    ['an error with a code', { orders: [{ ...order, outcome: 'refused', code: 'ERR_OWNED_NOT_FOUND' }] }],
    [
      'the end of a bot that the round killed',
      { bots: [{ ...bot, expected: 'kill', how: [null, 'SIGKILL'] }] },
    ],
  ]
  for (const [what, facts] of allowed)
    test(`accepts ${what}`, () => assert.deepEqual(violationsOf({ ...calm, ...facts }), []))
})
