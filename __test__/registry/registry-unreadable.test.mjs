// A registry that cannot be read never counts as empty: the API emits an event, the report has the
// problem, the command line warns and exits with 4, and the file stays unchanged until a checkpoint
// sets it aside.
import { chmodSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { abandoned, recordOf } from '../support/abandoned.mjs'
import { spawnOwnedCli } from '../support/cli.mjs'
import { startBot } from '../support/obedient-bot.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { journalLine, openRegistry } from '../support/registry.mjs'
import { isWindows } from '../support/system.mjs'

const limit = { timeout: 120_000 }
const UNREADABLE = 4

const whole = JSON.stringify({
  version: 1,
  entries: [
    { pid: 4_000_000, startedAt: 1, sessionId: null, botPid: 4_000_001, commandPreview: 'an old one' },
  ],
})

/** Contents that are not a registry. One missing byte at the end is enough. */
const broken = {
  'a truncated file': whole.slice(0, -1),
  'the first half of a file': whole.slice(0, whole.length / 2),
  'an empty file': '',
  'a binary file': Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0]),
  'another JSON document': '{"name":"spawn-owned","version":1}',
  'a JSON array': '[1,2,3]',
  'a registry with a malformed entry': '{"version":1,"entries":[{"pid":"none"}]}',
}

/** Contents of a registry without entries. */
const empty = {
  'a registry without entries': '{"version":1,"entries":[]}',
  'a registry of another program without entries': '{"entries":[]}',
}

/** A supervisor, and the registry events that it has emitted. */
function listening(registry) {
  const supervisor = registry.supervise()
  const events = []
  supervisor.on('event', (event) => event.type === 'registry' && events.push(event))
  return { supervisor, events }
}

describe('the API', () => {
  for (const [name, content] of Object.entries(broken)) {
    test(
      `list, survey, reapOrphans and findOrphans report ${name} and leave it as it is`,
      limit,
      async (t) => {
        const registry = openRegistry(t)
        registry.write(content)
        const { supervisor, events } = listening(registry)
        assert.deepEqual(supervisor.list(), [])
        assert.deepEqual(
          events.map(({ kind, path }) => ({ kind, path })),
          [{ kind: 'unreadable', path: registry.path }],
          'list() has emitted the event before it returned',
        )
        assert.ok(events[0].message.includes(registry.path), events[0].message)
        for (const dryRun of [true, false]) {
          const { registryProblem } = await supervisor.reapOrphans({ dryRun })
          assert.deepEqual(registryProblem, {
            kind: 'unreadable',
            message: events[0].message,
            path: registry.path,
          })
        }
        assert.equal((await supervisor.endOrphans({ dryRun: true })).registryProblem?.kind, 'unreadable')
        assert.equal((await supervisor.findOrphans({ suspects: false })).registryProblem?.kind, 'unreadable')
        await supervisor.survey()
        supervisor.list({ runId: 'x' })
        assert.equal(events.length, 1, 'one event for one file')
        assert.deepEqual(readFileSync(registry.path), Buffer.from(content))
        assert.deepEqual(registry.files(), ['process-registry.json'], 'nothing is written')
      },
    )
  }

  for (const [name, content] of Object.entries({ ...empty, 'no file': undefined })) {
    test(`list and reapOrphans report no problem with ${name}`, limit, async (t) => {
      const registry = openRegistry(t)
      if (content !== undefined) registry.write(content)
      const { supervisor, events } = listening(registry)
      assert.deepEqual(supervisor.list(), [])
      assert.equal('registryProblem' in (await supervisor.reapOrphans()), false)
      assert.equal('registryProblem' in (await supervisor.findOrphans({ suspects: false })), false)
      assert.deepEqual(events, [])
    })
  }

  test('list reports a file that is damaged again', limit, async (t) => {
    const registry = openRegistry(t)
    const { supervisor, events } = listening(registry)
    for (const content of ['damaged', whole, 'damaged again']) {
      registry.write(content)
      supervisor.list()
    }
    assert.equal(events.length, 2)
  })

  test('list reports a journal with malformed lines, but not the half line of a crash', limit, async (t) => {
    const registry = openRegistry(t)
    const left = await abandoned(t)
    const line = journalLine({ intent: { entry: await recordOf(left) } })
    const { supervisor, events } = listening(registry)
    // The writer died in the middle of its line; the next writer begins with a newline.
    registry.write(line.slice(0, line.length / 2) + line, registry.journal)
    assert.deepEqual(
      supervisor.list().map(({ pid }) => pid),
      [left.pid],
    )
    assert.deepEqual(events, [])
    registry.write(`Once upon a time\n${line}`, registry.journal)
    assert.equal(supervisor.list().length, 1)
    assert.deepEqual(
      events.map(({ kind, path }) => ({ kind, path })),
      [{ kind: 'unreadable', path: registry.journal }],
    )
    await supervisor.reapOrphans()
  })

  test('endOrphans with force touches no suspect when the registry cannot be read', limit, async (t) => {
    const registry = openRegistry(t)
    registry.write('damaged')
    const { supervisor } = listening(registry)
    await assert.rejects(supervisor.endOrphans({ force: true }), { code: 'ERR_OWNED_REGISTRY_CORRUPT' })
    const report = await supervisor.endOrphans({ force: true, dryRun: true }).catch((error) => error)
    assert.equal(report.code, 'ERR_OWNED_REGISTRY_CORRUPT', 'a dry run predicts the real run')
  })

  test('a bot without listeners gets a process warning', limit, async (t) => {
    const registry = openRegistry(t)
    registry.write('damaged')
    const bot = startBot(t, { options: { registryPath: registry.path } })
    await bot.ask('list')
    await bot.ask('list')
    await bot.dismiss()
    assert.equal(bot.complaint.match(/\[OWNED_REGISTRY_UNREADABLE\]/g)?.length, 1, bot.complaint)
  })
})

describe('the command line', () => {
  const commands = {
    ps: ['ps'],
    tree: ['tree'],
    metrics: ['metrics'],
    reap: ['reap'],
    'reap --dry-run': ['reap', '--dry-run'],
    'kill --orphans --dry-run': ['kill', '--orphans', '--dry-run'],
    'show of a run': ['show', 'some-run'],
    'cancel of a run': ['cancel', 'some-run'],
  }
  for (const [name, args] of Object.entries(commands)) {
    test(`${name} warns on stderr and exits with 4`, limit, async (t) => {
      const registry = openRegistry(t)
      registry.write(broken['a truncated file'])
      const { code, stderr } = await spawnOwnedCli(registry.path, args)
      assert.equal(code, UNREADABLE, stderr)
      assert.ok(stderr.includes(registry.path), stderr)
      assert.match(stderr, /warning: /)
      assert.equal(readFileSync(registry.path, 'utf8'), broken['a truncated file'])
      assert.deepEqual(registry.setAside(), [])
    })
  }

  test('--json contains the problem too', limit, async (t) => {
    const registry = openRegistry(t)
    registry.write('')
    for (const args of [
      ['ps'],
      ['tree'],
      ['reap'],
      ['reap', '--dry-run'],
      ['kill', '--orphans', '--dry-run'],
    ]) {
      const { code, json, stderr } = await spawnOwnedCli(registry.path, [...args, '--json'])
      assert.equal(code, UNREADABLE)
      assert.equal(json().registryProblem.kind, 'unreadable', args.join(' '))
      assert.match(stderr, /warning: /)
    }
  })

  test('an empty or missing registry causes no warning', limit, async (t) => {
    for (const content of [...Object.values(empty), undefined]) {
      const registry = openRegistry(t)
      if (content !== undefined) registry.write(content)
      for (const args of [['ps'], ['reap']]) {
        const { code, stderr } = await spawnOwnedCli(registry.path, args)
        assert.equal(code, 0, stderr)
        assert.doesNotMatch(stderr, /warning: /)
      }
      const { json } = await spawnOwnedCli(registry.path, ['ps', '--json'])
      assert.deepEqual(json(), { runs: [] })
    }
  })

  test('a folder in place of the file, or a file without permission, exits with 4', limit, async (t) => {
    const registry = openRegistry(t)
    mkdirSync(registry.path, { recursive: true })
    for (const args of [['ps'], ['reap'], ['reap', '--dry-run']]) {
      const { code, stderr } = await spawnOwnedCli(registry.path, args)
      assert.equal(code, UNREADABLE, stderr)
      assert.match(stderr, /ERR_OWNED_REGISTRY_/)
    }
    assert.equal(existsSync(registry.journal), false)
    if (isWindows || process.geteuid() === 0) return
    const other = openRegistry(t)
    other.write(whole)
    chmodSync(other.path, 0)
    assert.equal((await spawnOwnedCli(other.path, ['ps'])).code, UNREADABLE)
  })
})
