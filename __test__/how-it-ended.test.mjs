// How a run has ended, in one word and one sentence, by what is known of it: from its keeper, from its record, or from nobody.
import assert from 'node:assert/strict'
import { describe, sources, test } from './support/sources.mjs'

const { describeExit, describeCalledOff, exitOfEnded, exitOfFailed, exitOfRecord, isKept, isOver } =
  await sources('exit', 'records')

const somebody = { pid: 9, startToken: '9:1:2:b', command: 'sleep 9', why: 'EPERM' }
const facts = {
  runId: 'r',
  ending: 'root-exit',
  reason: 'exit',
  exitCode: 0,
  signal: null,
  durationMs: 5,
  limitMs: 0,
  escaped: [],
  survivors: [],
}

describe('a run says', () => {
  const byKill = { exitCode: null, signal: 'SIGKILL' }
  for (const [message, more] of [
    ['exited with code 0', {}],
    ['exited with code 3', { exitCode: 3 }],
    ['ended by SIGKILL', { reason: 'signal', ...byKill }],
    ['cancelled', { ending: 'cancel', reason: 'manual-cancel', ...byKill }],
    ['turn timed out after 90s', { ending: 'overall-timeout', reason: 'overall-timeout', limitMs: 90_000 }],
    ['turn timed out after 0.25s', { ending: 'overall-timeout', reason: 'overall-timeout', limitMs: 250 }],
    ['turn timed out', { ending: 'overall-timeout', reason: 'overall-timeout' }],
    ['no output for 2s', { ending: 'no-output-timeout', reason: 'no-output-timeout', limitMs: 2000 }],
    ['no output for too long', { ending: 'no-output-timeout', reason: 'no-output-timeout' }],
    ['ended because its owner is gone', { ending: 'owner-exit', reason: 'owner-exit' }],
    ['ended because its keeper was asked to shut down', { ending: 'shutdown', reason: 'shutdown' }],
    ['its keeper was killed; the tree was ended from outside', { ending: 'lost', reason: 'lost' }],
    ['had ended already; how is not known', { ending: 'gone', reason: 'lost' }],
    [
      'exited with code 0; 1 process that had left its session outlived it',
      { reason: 'ownership-escape', escaped: [somebody] },
    ],
    ['exited with code 0; 1 process could not be ended', { survivors: [somebody] }],
    ['exited with code 0; 7 processes could not be ended', { survivors: [somebody], survivorCount: 7 }],
    // Of a version to come.
    ['ended: something-new', { ending: 'something-new', reason: 'something-new' }],
  ])
    test(message, () => {
      const exit = describeExit({ ...facts, ...more })
      assert.equal(exit.message, message)
      assert.equal(exit.noOutputTimedOut, exit.reason === 'no-output-timeout')
      assert.equal(exit.timedOut, /timeout$/.test(exit.reason))
    })

  test('that it was called off', () => {
    const { message, reason } = describeCalledOff('r', 'manual-cancel')
    assert.deepEqual([message, reason], ['cancelled before it was started', 'manual-cancel'])
  })
})

const record = {
  runId: 'r',
  pid: 7,
  startToken: '7:1:2:b',
  commandPreview: 'agent --print',
  startedAt: 1000,
  updatedAtMs: 1500,
  state: 'exited',
  containment: 'keeper',
  onOwnerExit: 'keep',
}
const exit = { atMs: 3000, reason: 'exit', ending: 'root-exit', exitCode: 3, signal: null, survivors: 0 }

describe('a record', () => {
  for (const [why, more, expected] of [
    ['says how', { exit }, ['exit', 3, null, 2000, []]],
    [
      'says by which signal',
      { exit: { ...exit, reason: 'signal', exitCode: null, signal: 15 } },
      ['signal', null, 'SIGTERM', 2000, []],
    ],
    ['without an end is that of a run that was lost', {}, ['lost', null, null, 500, []]],
    ['of an older version has no reason', { exit: { ...exit, reason: '' } }, ['lost', 3, null, 2000, []]],
    ['whose clock went back lasts for no time', { exit: { ...exit, atMs: 1 } }, ['exit', 3, null, 0, []]],
    [
      'knows of survivors, but not whom',
      { exit: { ...exit, survivors: 2 } },
      ['exit', 3, null, 2000, [[7, "2 of this run's processes could not be ended; which, was not recorded"]]],
    ],
  ])
    test(why, () => {
      const { reason, exitCode, signal, durationMs, survivors } = exitOfRecord({ ...record, ...more })
      const told = survivors.map(({ pid, why: because }) => [pid, because])
      assert.deepEqual([reason, exitCode, signal, durationMs, told], expected)
    })

  test('is that of a run that is over if nothing is left', () => {
    const over = (more) => isOver({ ...record, ...more })
    assert.deepEqual(
      [over({ exit }), over({}), over({ exit: { ...exit, survivors: 1 } }), over({ state: 'exiting', exit })],
      [true, true, false, false],
    )
  })

  test('says keep also of a process that was registered, and nobody has asked for that', () => {
    const kept = (more) => isKept({ ...record, ...more })
    assert.deepEqual(
      [
        kept({}),
        kept({ onOwnerExit: 'kill' }),
        kept({ containment: 'group' }),
        kept({ containment: 'process' }),
      ],
      [true, false, false, false],
    )
  })
})

describe('a run that was ended by its record', () => {
  const ended = {
    ...facts,
    outcome: 'ended',
    record: { ...record, exit },
    ending: 'cancel',
    reason: 'manual-cancel',
    signal: 15,
  }
  for (const [why, more, expected] of [
    ['has left nobody', {}, []],
    ['has left those who are named', { survivors: [somebody] }, [somebody]],
    // Nobody may read "nothing is left" where nobody could look.
    [
      'may be there if it could not be ended',
      { outcome: 'failed', error: 'EACCES' },
      [{ pid: 7, startToken: '7:1:2:b', command: 'agent --print', why: 'EACCES' }],
    ],
    [
      'and nobody knows why',
      { outcome: 'failed' },
      [{ pid: 7, startToken: '7:1:2:b', command: 'agent --print', why: 'could not be ended' }],
    ],
    ['is told by who is known', { outcome: 'failed', survivors: [somebody], error: 'EACCES' }, [somebody]],
  ])
    test(why, () => {
      const { survivors, signal, durationMs } = exitOfEnded({ ...ended, ...more })
      assert.deepEqual([survivors, signal, durationMs], [expected, 'SIGTERM', 2000])
    })

  test('or could not even be asked', () => {
    const { message, survivors } = exitOfFailed(record, 'shutdown', new Error('no thread'))
    assert.deepEqual(survivors, [{ pid: 7, startToken: '', command: '', why: 'no thread' }])
    assert.match(message, /; 1 process could not be ended$/)
    assert.equal(exitOfFailed({ runId: 'not started' }, 'shutdown', new Error('no')).survivors[0].pid, 0)
  })
})
