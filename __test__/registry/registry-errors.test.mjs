// Each problem with a registry has a defined result: work goes on with an event, or a run is
// refused before it starts.
import { execFileSync } from 'node:child_process'
import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { abandoned, recordOf } from '../support/abandoned.mjs'
import { gone } from '../support/bots.mjs'
import { startBot } from '../support/obedient-bot.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { journalLine, openRegistry, until } from '../support/registry.mjs'
import { isWindows, NO_FIFOS, NO_KEEPER, NO_LINKS, NO_USERS, posixOnly } from '../support/system.mjs'

const limit = { timeout: 120_000 }

/** A supervisor that collects its registry events in `received`; `event(kind)` waits for one. */
function superviseWithEvents(registry) {
  const supervisor = registry.supervise()
  const received = []
  supervisor.on('event', (event) => event.type === 'registry' && received.push(event))
  const event = (kind) => until(() => received.find((it) => it.kind === kind), `an event ${kind}`)
  return Object.assign(supervisor, { received, event })
}

/** Starts a run of `supervisor` that stays. */
async function standing(t, { spawnOwned }) {
  const witness = openWitness(t)
  const run = spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
  await witness.ready(1)
  return { run, witness }
}

/**
 * Asserts that the registry works: a run starts, is listed, is in the file, and is removed from it.
 */
async function works(t, registry, supervisor) {
  const { run } = await standing(t, supervisor)
  assert.ok(supervisor.list().some(({ runId }) => runId === run.runId))
  await registry.has(run.runId, 'running')
  await run.cancel()
  await registry.lacks(run.runId)
}

/** Asserts that nothing can be started or registered. */
async function startsNothing(t, { spawnOwned, registerProcess }, code) {
  const witness = openWitness(t)
  const stdio = ['ignore', 'ignore', 'ignore', witness.writeEnd]
  assert.throws(() => spawnOwned(program('stays'), [witness.path], { stdio }), { code })
  witness.release()
  await witness.gone(20_000)
  const { pid, witness: bystander } = await abandoned(t)
  assert.throws(() => registerProcess({ pid }), { code })
  assert.equal(bystander.isGone(), false)
}

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

describe('a folder', () => {
  test('that does not exist is created with its parents', limit, async (t) => {
    const registry = openRegistry(t, join('not', 'there', 'yet', 'runs.json'))
    await works(t, registry, registry.supervise())
  })

  test(
    'that cannot be created because a file has its name is an error, and nothing is started',
    limit,
    async (t) => {
      const registry = openRegistry(t)
      writeFileSync(registry.folder, '')
      await startsNothing(t, registry.supervise(), 'ERR_OWNED_REGISTRY_UNWRITABLE')
      rmSync(registry.folder)
    },
  )
})

describe('after a deletion while a bot runs,', () => {
  const removeAll = (files) => {
    for (const file of files) rmSync(file)
  }
  const deletions = {
    'the file': ({ path }) => rmSync(path),
    'the file and the lock': ({ path, lock }) => removeAll([path, lock]),
    'the folder': ({ folder }) => rmSync(folder, { recursive: true, maxRetries: 10 }),
    'the content of the folder': ({ folder }) =>
      removeAll(readdirSync(folder).map((name) => join(folder, name))),
  }
  for (const [name, remove] of Object.entries(deletions)) {
    test(`${name} is restored with the live runs by the next change`, limit, async (t) => {
      const registry = openRegistry(t)
      const supervisor = registry.supervise()
      const { run } = await standing(t, supervisor)
      await registry.atRest(run.runId)
      remove(registry)
      assert.equal(supervisor.list().length, 1, 'the bot still lists its own run')
      const { run: next } = await standing(t, supervisor)
      await registry.has(next.runId, 'running')
      assert.equal(registry.entry(run.runId).state, 'running')
      const other = startBot(t, { options: { registryPath: registry.path } })
      assert.equal((await other.ask('list')).length, 2)
      await next.cancel()
      await run.cancel()
      await registry.lacks(run.runId)
      assert.deepEqual(registry.entries(), [])
    })
  }

  test('the journal, before its checkpoint, is restored by the next change', limit, async (t) => {
    const registry = openRegistry(t)
    const supervisor = registry.supervise()
    const { run } = await standing(t, supervisor)
    rmSync(registry.journal, { force: true })
    await works(t, registry, supervisor)
    assert.equal(registry.entry(run.runId).pid, run.pid)
    await run.cancel()
  })

  test('a run without the folder still ends', limit, async (t) => {
    const registry = openRegistry(t)
    const supervisor = registry.supervise()
    const { run, witness } = await standing(t, supervisor)
    await registry.atRest(run.runId)
    rmSync(registry.folder, { recursive: true, maxRetries: 10 })
    assert.equal((await run.cancel()).reason, 'manual-cancel')
    assert.equal(witness.isGone(), true)
    assert.deepEqual(supervisor.list(), [])
  })

  test(
    'the folder is not restored by the keepers of a killed bot, which end their runs',
    posixOnly(NO_KEEPER, limit),
    async (t) => {
      const registry = openRegistry(t)
      const witness = openWitness(t)
      const bot = startBot(t, { options: { registryPath: registry.path } })
      const { runId } = await bot.ask('spawn', program('stays'), [witness.path])
      await witness.ready(1)
      const { keeper } = await registry.has(runId, 'running')
      await registry.settled()
      rmSync(registry.folder, { recursive: true, maxRetries: 10 })
      await bot.kill('SIGKILL')
      await witness.gone(20_000)
      const [pid] = keeper.startToken.split(':')
      await gone(Number(pid))
      assert.equal(existsSync(registry.folder), false)
    },
  )
})

describe('a symbolic link', posixOnly(NO_LINKS), () => {
  for (const place of ['path', 'journal', 'lock']) {
    for (const dangling of [false, true]) {
      const name = `${place === 'path' ? 'file' : place}${dangling ? ', without a target,' : ''}`
      test(`in place of the ${name} is refused, and its target is unchanged`, limit, async (t) => {
        const registry = openRegistry(t)
        const target = join(registry.dir, 'target')
        const content = '{"version":1,"entries":[]}'
        if (!dangling) registry.write(content, target)
        mkdirSync(registry.folder, { recursive: true })
        symlinkSync(target, registry[place])
        await startsNothing(t, registry.supervise(), 'ERR_OWNED_REGISTRY_SYMLINK')
        if (dangling) assert.equal(existsSync(target), false)
        else assert.equal(readFileSync(target, 'utf8'), content)
        rmSync(registry[place])
        await works(t, registry, registry.supervise())
      })
    }
  }

  test('in place of the temporary file of a checkpoint is not followed', limit, async (t) => {
    const registry = openRegistry(t)
    const target = join(registry.dir, 'target')
    registry.write('precious', target)
    symlinkSync(target, `${registry.path}.tmp`)
    await works(t, registry, registry.supervise())
    assert.equal(readFileSync(target, 'utf8'), 'precious')
    assert.equal(
      registry.files().includes('process-registry.json.tmp'),
      false,
      'the checkpoint used this name',
    )
  })
})

describe('the registry refuses at once', () => {
  const kinds = {
    'a FIFO': (path) => execFileSync('mkfifo', [path]),
    'a folder': (path) => mkdirSync(path),
  }
  for (const [kind, make] of Object.entries(kinds)) {
    for (const place of ['path', 'journal', 'lock']) {
      const name = place === 'path' ? 'file' : place
      test(`${kind} in place of the ${name}`, posixOnly(kind === 'a FIFO' && NO_FIFOS, limit), async (t) => {
        const registry = openRegistry(t)
        mkdirSync(registry.folder, { recursive: true })
        make(registry[place])
        // An open of the FIFO would block forever.
        await startsNothing(t, registry.supervise(), 'ERR_OWNED_REGISTRY_NOT_A_FILE')
        rmSync(registry[place], { recursive: true, maxRetries: 10 })
        await works(t, registry, registry.supervise())
      })
    }
  }

  test(
    'a FIFO that replaces the file while a bot runs, and does not hang',
    posixOnly(NO_FIFOS, limit),
    async (t) => {
      const registry = openRegistry(t)
      const supervisor = superviseWithEvents(registry)
      const { run } = await standing(t, supervisor)
      await registry.atRest(run.runId)
      rmSync(registry.path)
      execFileSync('mkfifo', [registry.path])
      await run.cancel()
      await supervisor.event('unwritable')
      rmSync(registry.path)
      await registry.settled()
      assert.deepEqual(registry.entries(), [])
    },
  )
})

describe('a file of another user', () => {
  const otherUser = 65534
  const skip = isWindows ? NO_USERS : process.getuid() !== 0 && 'only root can give a file away'
  for (const place of ['path', 'journal', 'old', 'lock']) {
    const name = { path: 'file', old: 'journal of a checkpoint' }[place] ?? place
    test(`in place of the ${name} is refused, and nothing is started or ended`, {
      ...limit,
      skip,
    }, async (t) => {
      const registry = openRegistry(t)
      const left = await abandoned(t)
      const entry = await recordOf(left)
      const content =
        {
          path: JSON.stringify({ version: 1, entries: [entry] }),
          lock: '',
        }[place] ?? journalLine({ intent: { entry } })
      registry.write(content, registry[place])
      chownSync(registry[place], otherUser, otherUser)
      const supervisor = registry.supervise()
      const code = 'ERR_OWNED_REGISTRY_FOREIGN'
      await startsNothing(t, supervisor, code)
      if (place !== 'lock') {
        assert.throws(() => supervisor.list(), { code })
        await assert.rejects(supervisor.reapOrphans(), { code })
      }
      assert.equal(left.witness.isGone(), false)
      assert.equal(readFileSync(registry[place], 'utf8'), content)
      assert.equal(statSync(registry[place]).uid, otherUser)
      rmSync(registry[place])
    })
  }
})
