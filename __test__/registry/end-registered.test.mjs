// Registered processes end: by cancel, and by the next bot.
import {
  assertAlive,
  assertGone,
  bystander,
  entriesOf,
  freshRegistry,
  inAScript,
  startBot,
  statOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { inNamespace, namespace } from '../support/namespace.mjs'
import { assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import { child, noEntry } from '../support/registered.mjs'
import { ENDS_WITH_PARENT, isWindows, NO_SESSIONS, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

describe('cancel ends', together, () => {
  const targets = {
    'by run id': ({ record }) => record.runId,
    'by pid': ({ pid }) => ({ pid }),
    'by session': () => ({ sessionId: 's' }),
    'by its ChildProcess': (it) => it.child,
  }
  for (const [how, target] of Object.entries(targets)) {
    test(`a group leader with its whole group, ${how}`, options, async (t) => {
      const path = freshRegistry()
      const here = supervise(path)
      const it = await child(t)
      const record = here.registerProcess({ pid: it.pid, sessionId: 's', graceMs: 100 })
      const { outcome, exits } = await here.cancel(target({ ...it, record }))
      assertGone(it.witness)
      assert.equal(outcome, 'cancelled')
      const [{ runId, reason, survivors }] = exits
      assert.deepEqual([exits.length, runId, reason, survivors], [1, record.runId, 'manual-cancel', []])
      await noEntry(path)
    })
  }

  test('a group leader with descendants that left its group', options, async (t) => {
    const here = supervise(freshRegistry())
    const { pid, witness } = await child(t, { name: 'half-setsid', processes: 33 })
    here.registerProcess({ pid, graceMs: 1000 })
    const { outcome } = await here.cancel({ pid })
    assertGone(witness)
    assert.equal(outcome, 'cancelled')
  })

  test(
    "a process in its bot's group with its descendants, but neither bot nor sibling",
    posixOnly(NO_SESSIONS, options),
    async (t) => {
      const path = freshRegistry()
      const bot = await startBot(t, path)
      const witnesses = [openWitness(t), openWitness(t)]
      const pids = []
      for (const witness of witnesses) {
        pids.push(await bot.ask('child', program('half-setsid'), [witness.path]))
        await witness.ready(33)
      }
      const record = await bot.ask('register', { pid: pids[0], graceMs: 1000 })
      assert.deepEqual([record.containment, record.pgid], ['process', statOf(bot.pid).group])
      const { outcome } = await bot.ask('cancel', { pid: pids[0] })
      assertGone(witnesses[0])
      assert.equal(outcome, 'cancelled')
      assertAlive(witnesses[1])
      assert.deepEqual(await bot.ask('list'), [])
    },
  )

  test('a process in its bot’s group, called from another process', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witnesses = [openWitness(t), openWitness(t)]
    const pids = []
    for (const witness of witnesses) {
      pids.push(await bot.ask('child', program('ignores-sigterm'), [witness.path]))
      await witness.ready(2)
    }
    await bot.ask('register', { pid: pids[0], graceMs: 100 })
    const { outcome } = await supervise(path).cancel({ pid: pids[0] })
    assertGone(witnesses[0])
    assert.equal(outcome, 'cancelled')
    assertAlive(witnesses[1])
    await until(async () => (await bot.ask('list')).length === 0, 'the entry is removed')
    await noEntry(path)
  })

  test('a process in our own group, but neither us nor a sibling', options, async (t) => {
    const here = supervise(freshRegistry())
    const sibling = await child(t, { name: 'stays', processes: 1, detached: false })
    const { pid, witness } = await child(t, { detached: false })
    here.registerProcess({ pid, graceMs: 100 })
    assert.equal((await here.cancel({ pid })).outcome, 'cancelled')
    assertGone(witness)
    assertAlive(sibling.witness)
  })

  test('no process with another PID than the registered one', options, async (t) => {
    const here = supervise(freshRegistry())
    const { pid, witness } = await child(t)
    const otherProcess = await bystander(t)
    here.registerProcess({ pid })
    assert.equal((await here.cancel({ pid: otherProcess.pid })).outcome, 'not-found')
    assertAlive(otherProcess.witness)
    assertAlive(witness)
    await here.cancel({ pid }, { graceMs: 0 })
  })
})

test('cancel ends a process with a low PID, as all have in a container', inNamespace, async (t) => {
  const bot = await startBot(t, freshRegistry(), { within: namespace })
  const witness = openWitness(t)
  const pid = await bot.ask('child', program('ignores-sigterm'), [witness.path], { detached: true })
  await witness.ready(2)
  assert.ok(pid < 100, `${pid}`)
  await bot.ask('register', { pid, graceMs: 100 })
  const { outcome } = await bot.ask('cancel', { pid })
  assertGone(witness)
  assert.equal(outcome, 'cancelled')
})

describe('after the bot dies, a registered process lives on, and the next bot ends', together, () => {
  test('a process of a bot that exited by itself', options, async (t) => {
    const path = freshRegistry()
    const it = await bystander(t)
    assert.deepEqual(await inAScript(path, 'register', { pid: it.pid, runId: 'registered', graceMs: 500 }), [
      'registered',
    ])
    assertAlive(it.witness)
    assert.equal(entriesOf(path)[0].runId, 'registered', 'the file is up to date when a bot ends')
    assert.deepEqual((await supervise(path).reapOrphans()).killed, [it.pid])
    assertGone(it.witness)
  })

  for (const [what, detached] of [
    ['a group leader with its group', true],
    ['a process in another group with its descendants', false],
  ]) {
    test(what, posixOnly(!detached && ENDS_WITH_PARENT, options), async (t) => {
      const path = freshRegistry()
      const bot = await startBot(t, path)
      const witness = openWitness(t)
      const tree = treeNamed('half-setsid')
      const [command, args] = tree.command(witness.path)
      const pid = await bot.ask('child', command, args, { detached })
      const other = openWitness(t)
      // On Windows a child that is not detached ends with its parent.
      await bot.ask('child', program('stays'), [other.path], { detached: isWindows })
      await other.ready(1)
      await witness.ready(tree.ready)
      await bot.ask('register', { pid, graceMs: 1000 })
      await bot.kill()
      assertAlive(witness)
      const { killed, skipped } = await supervise(path).reapOrphans()
      assertGone(witness)
      assert.deepEqual([killed, skipped], [[pid], []])
      assertAlive(other)
      await noEntry(path)
    })
  }
})
