// Registry files with bad content: a file that cannot be parsed, a torn journal, a file of a newer
// version.
import { existsSync, readFileSync, statSync, truncateSync } from 'node:fs'
import { abandoned, recordOf } from '../support/abandoned.mjs'
import { startBot } from '../support/obedient-bot.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { journalLine, openRegistry } from '../support/registry.mjs'
import { standing, startsNothing, superviseWithEvents, works } from '../support/registry-errors.mjs'
import { isWindows } from '../support/system.mjs'

const limit = { timeout: 120_000 }

describe('a file that cannot be parsed', () => {
  const sample = {
    pid: 4_000_000,
    startedAt: 1,
    sessionId: null,
    botPid: 4_000_001,
    commandPreview: 'an old one',
  }
  const broken = {
    'is not JSON': 'Once upon a time',
    'is empty': '',
    'is cut off': JSON.stringify({ version: 1, entries: [sample, sample] }).slice(0, -20),
    'is binary': Buffer.from([0, 255, 1, 254, 10, 0]),
    'is another JSON document': '[1, 2, 3]',
    'has entries that are not a list': '{"version":1,"entries":{"a":1}}',
    'is nested too deeply': `{"entries":${'['.repeat(100_000)}`,
    'has an invalid version': '{"version":"new","entries":[]}',
  }
  for (const [name, content] of Object.entries(broken)) {
    test(`because it ${name} is set aside, and runs start as usual`, limit, async (t) => {
      const registry = openRegistry(t)
      registry.write(content)
      const supervisor = superviseWithEvents(registry)
      assert.deepEqual(supervisor.list(), [])
      const { run } = await standing(t, supervisor)
      const { path, message } = await supervisor.event('corrupt')
      await registry.has(run.runId, 'running')
      assert.deepEqual(registry.setAside(), [path])
      assert.match(path, /process-registry\.json\.corrupt-\d{13}$/)
      assert.deepEqual(readFileSync(path), Buffer.from(content), 'the content is kept')
      assert.ok(message.includes(path), message)
      if (!isWindows) assert.equal(statSync(path).mode & 0o777, 0o600)
      await run.cancel()
      await registry.lacks(run.runId)
      const kinds = supervisor.received.map(({ kind }) => kind)
      assert.deepEqual(
        kinds,
        ['unreadable', 'corrupt'],
        'list() and then the checkpoint report the file, once each',
      )
    })
  }

  test('while a bot runs contains the live runs again after the next change', limit, async (t) => {
    const registry = openRegistry(t)
    const supervisor = superviseWithEvents(registry)
    const { run } = await standing(t, supervisor)
    await registry.atRest(run.runId)
    truncateSync(registry.path, 40)
    assert.deepEqual(
      supervisor.list().map(({ runId }) => runId),
      [run.runId],
      'the bot still lists its own run',
    )
    const { run: next } = await standing(t, supervisor)
    await supervisor.event('corrupt')
    assert.equal((await registry.has(next.runId)).pid, next.pid)
    assert.equal(registry.entry(run.runId).pid, run.pid)
  })

  test('because of one malformed entry keeps its other entries', limit, async (t) => {
    const registry = openRegistry(t)
    const [left, damaged] = [await abandoned(t), await abandoned(t)]
    const entries = [await recordOf(left), { ...(await recordOf(damaged)), startToken: 'nonsense' }]
    const content = JSON.stringify({ version: 1, entries })
    registry.write(content)
    const supervisor = superviseWithEvents(registry)
    assert.deepEqual(
      supervisor.list().map(({ pid }) => pid),
      [left.pid],
    )
    await works(t, registry, supervisor)
    const { path } = await supervisor.event('corrupt')
    assert.equal(readFileSync(path, 'utf8'), content)
    const { killed } = await supervisor.reapOrphans()
    assert.deepEqual(killed, [left.pid])
    assert.deepEqual([left.witness.isGone(), damaged.witness.isGone()], [true, false])
  })

  test('causes one process warning if the bot has no listener', limit, async (t) => {
    const registry = openRegistry(t)
    registry.write('not JSON')
    const bot = startBot(t, { options: { registryPath: registry.path } })
    const { runId } = await bot.ask('spawn', 'cat', [], { stdio: ['pipe', 'ignore', 'ignore'] })
    await registry.mended(1)
    await registry.atRest(runId)
    registry.write('not JSON again')
    await bot.ask('endInput', runId)
    await bot.ask('wait', runId)
    await registry.mended(2)
    await registry.lacks(runId)
    await bot.dismiss()
    assert.equal(bot.complaint.match(/\[OWNED_REGISTRY_CORRUPT\]/g)?.length, 1, bot.complaint)
    assert.ok(bot.complaint.includes(registry.setAside()[0]), bot.complaint)
    assert.deepEqual(registry.read(), { version: 1, entries: [] })
  })
})

describe('a journal', () => {
  test('with a torn tail counts up to the tail', limit, async (t) => {
    const registry = openRegistry(t)
    const [whole, torn] = [await abandoned(t), await abandoned(t)]
    const [first, second] = [await recordOf(whole), await recordOf(torn)]
    const tail = journalLine({ intent: { entry: second } })
    registry.write(
      journalLine({ intent: { entry: first } }) + tail.slice(0, tail.length / 2),
      registry.journal,
    )
    const supervisor = superviseWithEvents(registry)
    assert.deepEqual(
      supervisor.list().map(({ pid }) => pid),
      [whole.pid],
    )
    // The next line is written right after the torn one.
    await works(t, registry, supervisor)
    await supervisor.event('torn')
    assert.deepEqual(
      registry.entries().map(({ pid }) => pid),
      [whole.pid],
    )
    const { killed } = await supervisor.reapOrphans()
    assert.deepEqual(killed, [whole.pid])
    assert.deepEqual([whole.witness.isGone(), torn.witness.isGone()], [true, false])
  })

  test('with garbage in it counts except for the garbage', limit, async (t) => {
    const registry = openRegistry(t)
    const left = [await abandoned(t), await abandoned(t), await abandoned(t)]
    const lines = await Promise.all(
      left.map(async (process) => journalLine({ intent: { entry: await recordOf(process) } })),
    )
    const garbage = [
      'Once upon a time\n',
      Buffer.from([0, 255, 254, 10, 0, 10, 10]),
      '5 {}{}{\n12 {"intent":{}}\n-1 {}\n99999999999999999999 {}\n',
      journalLine({ future: { key: 'x' } }),
      journalLine({ dropped: {} }),
      journalLine({ intent: { entry: { pid: left[0].pid } } }),
      `${'x'.repeat(300_000)}\n`,
    ]
    const pieces = [garbage[0], lines[0], ...garbage.slice(1, 4), lines[1], ...garbage.slice(4), lines[2]]
    registry.write(Buffer.concat(pieces.map((piece) => Buffer.from(piece))), registry.journal)
    const supervisor = superviseWithEvents(registry)
    const pids = left.map(({ pid }) => pid).sort()
    assert.deepEqual(
      supervisor
        .list()
        .map(({ pid }) => pid)
        .sort(),
      pids,
    )
    await works(t, registry, supervisor)
    await supervisor.event('torn')
    assert.deepEqual(
      registry
        .entries()
        .map(({ pid }) => pid)
        .sort(),
      pids,
    )
  })

  test('that a crash left together with its checkpoint counts once', limit, async (t) => {
    const registry = openRegistry(t)
    const left = await abandoned(t)
    const entry = await recordOf(left)
    registry.write(JSON.stringify({ version: 1, entries: [entry] }))
    registry.write(journalLine({ intent: { entry } }), registry.old)
    registry.write(journalLine({ intent: { entry } }), registry.journal)
    const supervisor = superviseWithEvents(registry)
    assert.equal(supervisor.list().length, 1)
    await works(t, registry, supervisor)
    await registry.settled()
    assert.equal(registry.entries().length, 1)
    const { killed } = await supervisor.reapOrphans()
    assert.deepEqual(killed, [left.pid])
  })
})

describe('a file of a newer version', () => {
  const content = JSON.stringify({ version: 2, entries: [], tomorrow: true })

  test('is refused and left unchanged, and nothing is started', limit, async (t) => {
    const registry = openRegistry(t)
    registry.write(content)
    const supervisor = registry.supervise()
    const code = 'ERR_OWNED_REGISTRY_NEWER'
    await startsNothing(t, supervisor, code)
    assert.throws(() => supervisor.list(), { code })
    await assert.rejects(supervisor.reapOrphans(), { code })
    await assert.rejects(supervisor.cancel('some-run'), { code })
    assert.equal(readFileSync(registry.path, 'utf8'), content)
    assert.equal(existsSync(registry.journal), false)
    // After a downgrade of the file the supervisor works without a restart.
    registry.write('{"version":1,"entries":[]}')
    await works(t, registry, supervisor)
  })

  test('that appears while a bot runs is left unchanged, and the bot gets an event', limit, async (t) => {
    const registry = openRegistry(t)
    const supervisor = superviseWithEvents(registry)
    const { run, witness } = await standing(t, supervisor)
    await registry.atRest(run.runId)
    registry.write(content)
    await run.cancel()
    assert.equal(witness.isGone(), true)
    const { message } = await supervisor.event('unwritable')
    assert.match(message, /newer/)
    assert.equal(readFileSync(registry.path, 'utf8'), content)
    registry.write('{"version":1,"entries":[]}')
    await registry.settled()
  })
})
