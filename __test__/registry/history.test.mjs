// history(): how ended runs ended, of all bots. And what survey, reapOrphans and
// registerProcess say in addition.
import { spawn } from 'node:child_process'
import {
  appendFileSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import fsPromises from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { USER_A, withoutUsers } from '../support/another-user.mjs'
import { assertGone, bystander, freshRegistry, startBot, supervise, until } from '../support/bots.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { sources, test as sourceTest } from '../support/sources.mjs'
import { isWindows, NO_KEEPER, NO_SHELL, posixOnly } from '../support/system.mjs'

const options = { timeout: 60_000 }
const fileOf = (path) => `${path}.history`
const idsOf = async (supervisor) => (await supervisor.history()).map(({ runId }) => runId)

/** Calls `hook` for each file that the package opens with node:fs/promises, until the test ends. */
function hookOpen(t, hook) {
  const { open } = fsPromises
  const use = (value) => {
    fsPromises.open = value
    syncBuiltinESMExports()
  }
  use((...args) => hook(() => open(...args)))
  t.after(() => use(open))
}

describe('history() has', options, () => {
  test('a run of this bot, with its exit', async () => {
    const path = freshRegistry()
    const supervisor = supervise(path)
    const before = Date.now()
    const run = { runId: 'r1', sessionId: 's', labels: { a: 'b' }, scopeKey: 'k', backendId: 'b' }
    await supervisor.run(process.execPath, ['-e', 'process.exit(3)'], { ...run, commandPreview: 'preview' })
    const [{ startedAt, endedAtMs, durationMs, pid, ...rest }, ...others] = await supervisor.history()
    assert.deepEqual(others, [])
    assert.deepEqual(rest, {
      ...run,
      ...{
        botPid: process.pid,
        commandPreview: 'preview',
        reason: 'exit',
        ok: false,
        exitCode: 3,
        signal: null,
      },
      ...{ message: 'exited with code 3', leftovers: 0, forced: 0, survivors: 0 },
    })
    assert.ok(pid > 0 && endedAtMs >= before && endedAtMs <= Date.now())
    assert.equal(startedAt, endedAtMs - durationMs)
    if (!isWindows) assert.equal(statSync(fileOf(path)).mode & 0o777, 0o600)
    assert.equal(JSON.parse(readFileSync(fileOf(path), 'utf8')).runId, 'r1')
  })

  test('runs that match the filter, oldest first', async () => {
    const supervisor = supervise(freshRegistry())
    for (const sessionId of ['a', 'b', 'a'])
      await supervisor.run(process.execPath, ['-e', '0'], { sessionId })
    const sessions = async (filter) => (await supervisor.history(filter)).map((run) => run.sessionId)
    assert.deepEqual(await sessions(), ['a', 'b', 'a'])
    assert.deepEqual(await sessions({ sessionId: 'a' }), ['a', 'a'])
    assert.deepEqual(await sessions({ limit: 2 }), ['b', 'a'])
    assert.deepEqual(await sessions({ limit: 0 }), [])
    assert.deepEqual(await sessions({ sinceMs: 60_000, sessionId: 'b' }), ['b'])
    assert.deepEqual(await sessions({ sessionId: 'c' }), [])
    await assert.rejects(supervisor.history({ session: 'a' }), { code: 'ERR_INVALID_ARG_VALUE' })
    await assert.rejects(supervisor.history({ limit: 1.5 }), { code: 'ERR_OUT_OF_RANGE' })
  })

  test('no command that could not be started', async () => {
    const supervisor = supervise(freshRegistry())
    await supervisor.run('/nonexistent/command')
    assert.deepEqual(await supervisor.history(), [])
  })

  test('a run of a killed bot, before and after the reap', posixOnly(NO_KEEPER), async (t) => {
    const path = freshRegistry()
    const witness = openWitness(t)
    const bot = await startBot(t, path)
    await bot.ask('spawn', program('stays'), [witness.path], { runId: 'left' })
    await witness.ready(1)
    const next = supervise(path)
    // Its keeper has the rules, and with them the place of the registry.
    await until(() => next.list()[0]?.state === 'running', 'the run is running')
    await bot.kill()
    await witness.gone(30_000)
    const ended = () => next.history({ runId: 'left' })
    const [first] = await until(
      async () => ((await ended()).length > 0 ? ended() : undefined),
      'its end is recorded',
    )
    assert.deepEqual([first.reason, first.botPid, first.ok], ['owner-exit', bot.pid, false])
    await next.reapOrphans()
    const [second, ...more] = await ended()
    assert.deepEqual([second.reason, second.endedAtMs, more], ['owner-exit', first.endedAtMs, []])
  })

  test('a run that a reap terminated, which the report names', posixOnly(NO_KEEPER), async (t) => {
    const path = freshRegistry()
    const witness = openWitness(t)
    const bot = await startBot(t, path)
    await bot.ask('spawn', program('stays'), [witness.path], { runId: 'kept', onOwnerExit: 'keep' })
    await witness.ready(1)
    await bot.kill()
    const next = supervise(path)
    assert.deepEqual((await next.reapOrphans({ dryRun: true })).ended, [])
    const { ended, killed } = await next.reapOrphans()
    assertGone(witness)
    assert.deepEqual(
      ended.map(({ runId, pid }) => [runId, pid]),
      [['kept', killed[0]]],
    )
    const [run] = await next.history()
    assert.deepEqual([run.runId, run.reason], ['kept', 'owner-exit'])
  })

  test('the last run of a bot that exits at once', async (t) => {
    const path = freshRegistry()
    const code = `
      const { createSupervisor } = require('spawn-owned')
      createSupervisor({ registryPath: ${JSON.stringify(path)} }).run(process.execPath, ['-e', '0'], { runId: 'last' }).then(() => process.exit())`
    const bot = spawn(process.execPath, ['-e', code], {
      stdio: 'inherit',
      cwd: fileURLToPath(new URL('..', import.meta.url)),
    })
    t.after(() => bot.kill())
    await new Promise((resolve) => bot.once('exit', resolve))
    assert.deepEqual(
      (await supervise(path).history()).map(({ runId }) => runId),
      ['last'],
    )
  })
})

describe('the file of the history', options, () => {
  test('is written to historyPath, or not at all if that is null', async () => {
    const path = freshRegistry()
    const historyPath = join(dirname(path), 'my-history')
    await supervise(path, { historyPath }).run(process.execPath, ['-e', '0'])
    assert.equal((await supervise(path, { historyPath }).history()).length, 1)
    assert.equal(existsSync(historyPath), true)
    const off = supervise(path, { historyPath: null })
    await off.run(process.execPath, ['-e', '0'])
    assert.deepEqual(await off.history(), [])
    assert.throws(() => supervise(path, { historyPath: path }), { code: 'ERR_INVALID_ARG_VALUE' })
  })

  test('is never written through a link, and the failure is reported', posixOnly(NO_SHELL), async () => {
    const path = freshRegistry()
    mkdirSync(dirname(path))
    const victim = join(dirname(path), 'victim')
    writeFileSync(victim, '')
    symlinkSync(victim, fileOf(path))
    const supervisor = supervise(path)
    assert.equal((await supervisor.run(process.execPath, ['-e', '0'])).ok, true)
    await assert.rejects(supervisor.history(), { code: 'ELOOP' })
    assert.equal(readFileSync(victim, 'utf8'), '')
    assert.ok(supervisor.events.some(({ type, kind }) => type === 'registry' && kind === 'history'))
  })

  test('is neither read nor written if another user owns it', { skip: withoutUsers }, async () => {
    for (const suffix of ['', '.1']) {
      const path = freshRegistry()
      mkdirSync(dirname(path))
      const file = fileOf(path) + suffix
      const forged = `${JSON.stringify({ runId: 'forged', pid: 1, endedAtMs: Date.now() })}\n`
      writeFileSync(file, forged)
      chownSync(file, USER_A, USER_A)
      const supervisor = supervise(path)
      assert.equal((await supervisor.run(process.execPath, ['-e', '0'])).ok, true)
      await assert.rejects(supervisor.history(), { message: `${file} belongs to another user` })
      assert.equal(readFileSync(file, 'utf8'), forged)
      const reports = supervisor.events.filter(({ type, kind }) => type === 'registry' && kind === 'history')
      assert.equal(reports.length, suffix === '' ? 1 : 0)
    }
  })

  test('is neither read nor written if it has another hard link', posixOnly(NO_SHELL), async () => {
    const path = freshRegistry()
    mkdirSync(dirname(path))
    const victim = join(dirname(path), 'victim')
    writeFileSync(victim, '')
    linkSync(victim, fileOf(path))
    const supervisor = supervise(path)
    await supervisor.run(process.execPath, ['-e', '0'])
    await assert.rejects(supervisor.history(), /another hard link/)
    assert.equal(readFileSync(victim, 'utf8'), '')
  })

  test('moves to .1 when it is long, and both are read', async () => {
    const path = freshRegistry()
    const supervisor = supervise(path)
    await supervisor.run(process.execPath, ['-e', '0'], { runId: 'first' })
    await supervisor.history()
    appendFileSync(fileOf(path), `${'x'.repeat(1024 * 1024)}\n`)
    await supervisor.run(process.execPath, ['-e', '0'], { runId: 'second' })
    await supervisor.history()
    assert.equal(existsSync(`${fileOf(path)}.1`), true)
    await supervisor.run(process.execPath, ['-e', '0'], { runId: 'third' })
    assert.deepEqual(await idsOf(supervisor), ['first', 'second', 'third'])
  })

  test('is renamed once by two bots that find it full', async (t) => {
    const path = freshRegistry()
    const [slow, other] = [supervise(path), await startBot(t, path)]
    const command = (runId) => [process.execPath, ['-e', '0'], { runId }]
    await slow.run(...command('first'))
    await slow.history()
    appendFileSync(fileOf(path), `${'x'.repeat(1024 * 1024)}\n`)
    // This bot has appended its line to the full file. Then the other bot is faster.
    let appended
    const hasAppended = new Promise((resolve) => {
      appended = resolve
    })
    let resume
    const isResumed = new Promise((resolve) => {
      resume = resolve
    })
    let isFirst = true
    hookOpen(t, async (open) => {
      const file = await open()
      if (!isFirst) return file
      isFirst = false
      const { appendFile } = file
      file.appendFile = async (text) => {
        await appendFile.call(file, text)
        appended()
        await isResumed
      }
      return file
    })
    await slow.run(...command('slow'))
    const ids = idsOf(slow)
    await hasAppended
    await other.ask('spawn', ...command('second'))
    await until(() => existsSync(`${fileOf(path)}.1`), 'the other bot has renamed the file')
    await other.ask('spawn', ...command('third'))
    const hasThird = () => existsSync(fileOf(path)) && readFileSync(fileOf(path), 'utf8').endsWith('}\n')
    await until(hasThird, 'a new file has the third run')
    resume()
    assert.deepEqual(await ids, ['first', 'slow', 'second', 'third'])
  })

  test('is read completely while another bot renames it', async (t) => {
    const path = freshRegistry()
    const supervisor = supervise(path)
    for (const runId of ['first', 'second']) {
      await supervisor.run(process.execPath, ['-e', '0'], { runId })
      await supervisor.history()
    }
    let last = Promise.resolve()
    let opened = 0
    hookOpen(t, (open) => {
      // One after the other: the file is renamed after the first one.
      const file = last.then(open)
      last = file
        .catch(() => {})
        .then(() => {
          if (opened++ === 0) renameSync(fileOf(path), `${fileOf(path)}.1`)
        })
      return file.finally(() => last)
    })
    assert.deepEqual(await idsOf(supervisor), ['first', 'second'])
    assert.equal(existsSync(`${fileOf(path)}.1`), true)
  })
})

sourceTest('damaged and old lines are skipped, and the latest thousand are kept', async () => {
  const { parseHistory } = await sources('registry/run-history')
  const now = Date.now()
  const line = (runId, endedAtMs, more) => JSON.stringify({ runId, pid: 1, endedAtMs, ...more })
  const day = 24 * 60 * 60 * 1000
  const text = ['', 'x', '{}', 'null', line('old', now - 8 * day), line('a', now), line('b', now - day)]
  text.push(line('a', now, { ok: true }), '{"runId":"torn"')
  const runs = parseHistory(text.join('\n'), now)
  assert.deepEqual(
    runs.map(({ runId, ok }) => [runId, ok]),
    [
      ['b', undefined],
      ['a', true],
    ],
  )
  const many = Array.from({ length: 1500 }, (_, index) => line(`r${index}`, now - 1500 + index)).join('\n')
  const kept = parseHistory(many, now)
  assert.deepEqual([kept.length, kept[0].runId], [1000, 'r500'])
})

test('survey({ tree: true }) nests the processes of a run', posixOnly(NO_SHELL, options), async () => {
  const supervisor = supervise(freshRegistry())
  const child = supervisor.spawnOwned('sh', ['-c', 'sh -c "sleep 600 & sleep 601; :" & echo; wait; :'])
  const members = async (tree) => (await supervisor.survey({ runId: child.runId, tree }))[0].members
  await until(
    async () => (await members(false)).filter(({ command }) => command === 'sleep').length === 2,
    'two sleep',
  )
  const flat = await members(false)
  assert.ok(flat.every((member) => !('children' in member)))
  const shape = ({ command, children }) => [command, children.map(shape)]
  assert.deepEqual((await members(true)).map(shape), [
    [
      'sh',
      [
        [
          'sh',
          [
            ['sleep', []],
            ['sleep', []],
          ],
        ],
      ],
    ],
  ])
  await assert.rejects(supervisor.survey({ tree: 1 }), { code: 'ERR_INVALID_ARG_TYPE' })
  await child.cancel({ graceMs: 0 })
})

describe('registerProcess({ timeoutMs })', options, () => {
  test('terminates the process, and the history says why', async (t) => {
    const supervisor = supervise(freshRegistry())
    const { pid, witness } = await bystander(t)
    supervisor.registerProcess({ pid, runId: 'limited', timeoutMs: 100, graceMs: 0 })
    await witness.gone(30_000)
    const ended = () => supervisor.history({ runId: 'limited' })
    const [{ reason }] = await until(
      async () => ((await ended()).length > 0 ? ended() : undefined),
      'its end',
    )
    assert.equal(reason, 'overall-timeout')
  })

  test('leaves a process alone that was unregistered', async (t) => {
    const supervisor = supervise(freshRegistry())
    const [first, second] = [await bystander(t), await bystander(t)]
    supervisor.registerProcess({ pid: first.pid, timeoutMs: 100 })
    assert.equal(supervisor.unregisterProcess({ pid: first.pid }), true)
    supervisor.registerProcess({ pid: second.pid, timeoutMs: 200, graceMs: 0 })
    await second.witness.gone(30_000)
    assert.equal(first.witness.isGone(), false)
    const wrong = { pid: first.pid, timeoutMs: '1s' }
    assert.throws(() => supervisor.registerProcess(wrong), { code: 'ERR_INVALID_ARG_TYPE' })
  })
})
