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
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { abandoned, recordOf } from '../support/abandoned.mjs'
import { gone } from '../support/bots.mjs'
import { startBot } from '../support/obedient-bot.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { journalLine, openRegistry } from '../support/registry.mjs'
import { standing, startsNothing, superviseWithEvents, works } from '../support/registry-errors.mjs'
import { isWindows, NO_FIFOS, NO_KEEPER, NO_LINKS, NO_USERS, posixOnly } from '../support/system.mjs'

const limit = { timeout: 120_000 }

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
