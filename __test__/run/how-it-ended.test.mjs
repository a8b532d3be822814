// The exit of a run: reason and message, derived from the keeper's report, from the registry entry,
// or from an error.
import assert from 'node:assert/strict'
import { constants } from 'node:os'
import { describe, sources, test } from '../support/sources.mjs'

const {
  describeExit,
  describeCancelledBeforeStart,
  exitOfEnded,
  exitOfFailed,
  exitOfRecord,
  isKept,
  isOver,
} = await sources('run/run-exit', 'registry/record-exit')

const survivor = { pid: 9, startToken: '9:1:2:b', command: 'sleep 9', why: 'EPERM' }
const facts = {
  runId: 'r',
  ending: 'root-exit',
  reason: 'exit',
  exitCode: 0,
  durationMs: 5,
  limitMs: 0,
  leftovers: [],
  escaped: [],
  forced: [],
  survivors: [],
}

describe('the message of an exit is', () => {
  const byKill = { exitCode: undefined, signal: constants.signals.SIGKILL }
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
    ['ended because its keeper was shut down', { ending: 'shutdown', reason: 'shutdown' }],
    ['its keeper was killed; the tree was terminated from outside', { ending: 'lost', reason: 'lost' }],
    ['had already ended; its exit status is unknown', { ending: 'gone', reason: 'lost' }],
    [
      'exited with code 0; 1 process that had left its session outlived it',
      { reason: 'ownership-escape', escaped: [survivor] },
    ],
    ['exited with code 0; 1 process could not be terminated', { survivors: [survivor] }],
    ['exited with code 0; 7 processes could not be terminated', { survivors: [survivor], survivorCount: 7 }],
    // From a later version.
    ['ended: something-new', { ending: 'something-new', reason: 'something-new' }],
  ])
    test(message, () => {
      const exit = describeExit({ ...facts, ...more })
      assert.equal(exit.message, message)
      assert.equal(exit.noOutputTimedOut, exit.reason === 'no-output-timeout')
      assert.equal(exit.timedOut, /timeout$/.test(exit.reason))
    })

  test('“cancelled before it was started” for a run that is cancelled before its start', () => {
    const { message, reason } = describeCancelledBeforeStart('r', 'manual-cancel')
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

describe('a registry entry', () => {
  for (const [name, more, expected] of [
    ['gives the exit code', { exit }, ['exit', 3, null, 2000, []]],
    [
      'gives the signal',
      { exit: { ...exit, reason: 'signal', exitCode: null, signal: 15 } },
      ['signal', null, 'SIGTERM', 2000, []],
    ],
    ['without an exit gives the reason lost', {}, ['lost', null, null, 500, []]],
    [
      'of an older version, without a reason, gives the reason lost',
      { exit: { ...exit, reason: '' } },
      ['lost', 3, null, 2000, []],
    ],
    [
      'from before a clock change gives a duration of 0',
      { exit: { ...exit, atMs: 1 } },
      ['exit', 3, null, 0, []],
    ],
    [
      'gives the count of survivors without their identity',
      { exit: { ...exit, survivors: 2 } },
      [
        'exit',
        3,
        null,
        2000,
        [[7, '2 processes of this run could not be terminated. The registry does not record their PIDs']],
      ],
    ],
  ])
    test(name, () => {
      const { reason, exitCode, signal, durationMs, survivors } = exitOfRecord({ ...record, ...more })
      const seen = survivors.map(({ pid, why: because }) => [pid, because])
      assert.deepEqual([reason, exitCode, signal, durationMs, seen], expected)
    })

  test('counts as over only in the state exited and without survivors', () => {
    const over = (more) => isOver({ ...record, ...more })
    assert.deepEqual(
      [over({ exit }), over({}), over({ exit: { ...exit, survivors: 1 } }), over({ state: 'exiting', exit })],
      [true, true, false, false],
    )
  })

  test('of a registered process does not count as kept', () => {
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

describe('the exit of a run that was ended by its registry entry', () => {
  const ended = {
    ...facts,
    outcome: 'ended',
    record: { ...record, exit },
    ending: 'cancel',
    reason: 'manual-cancel',
    signal: 15,
  }
  for (const [name, more, expected] of [
    ['has no survivors if the run ended', {}, []],
    ['has the reported survivors', { survivors: [survivor] }, [survivor]],
    // An empty list would claim that no process is left, although the tree could not be checked.
    [
      'has the root as survivor, with the error, if ending failed',
      { outcome: 'failed', error: 'EACCES' },
      [{ pid: 7, startToken: '7:1:2:b', command: 'agent --print', why: 'EACCES' }],
    ],
    [
      'has the root as survivor, with a general text, if the error is unknown',
      { outcome: 'failed' },
      [{ pid: 7, startToken: '7:1:2:b', command: 'agent --print', why: 'could not be terminated' }],
    ],
    [
      'has only the reported survivors if they are known',
      { outcome: 'failed', survivors: [survivor], error: 'EACCES' },
      [survivor],
    ],
  ])
    test(name, () => {
      const { survivors, signal, durationMs } = exitOfEnded({ ...ended, ...more })
      assert.deepEqual([survivors, signal, durationMs], [expected, 'SIGTERM', 2000])
    })

  test('has the root as survivor, with the error, if the request failed', () => {
    const { message, survivors } = exitOfFailed(record, 'shutdown', new Error('no thread'))
    assert.deepEqual(survivors, [{ pid: 7, startToken: '', command: '', why: 'no thread' }])
    assert.match(message, /; 1 process could not be terminated$/)
    assert.equal(exitOfFailed({ runId: 'not started' }, 'shutdown', new Error('no')).survivors[0].pid, 0)
  })
})
