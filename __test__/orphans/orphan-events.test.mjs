// Orphan events and the lines of the event log: one of each for every decision, with the same
// content, before the first signal and after the end.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { captureStartToken } from 'spawn-owned'
import {
  altered,
  assertAlive,
  assertGone,
  fileHas,
  freshRegistry,
  past,
  startBot,
  supervise,
  until,
} from '../support/bots.mjs'
import { crashed, crashedAs, kept, mistaken, owned } from '../support/orphans.mjs'
import { assert, CLEANED_UP, describe, program, test } from '../support/prelude.mjs'
import {
  isWindows,
  linuxOnly,
  NO_LINKS,
  NO_NAMESPACES,
  NOT_FROM_OUTSIDE,
  posixOnly,
} from '../support/system.mjs'

const options = { timeout: 30_000 }
const together = { timeout: 60_000, concurrency: 4 }
const deaf = { command: (path) => [program('marks-every-sigterm'), [path]], ready: 1 }
const names = ['detected', 'killed', 'skipped', 'failed']
const LINE =
  /^(\S+) ([A-Z]+) pid=(\d+) cmd=("(?:[^"\\]|\\.)*") age=(\d+s|unknown) status=([a-z]+) reason=("(?:[^"\\]|\\.)*")$/

const logFile = (path) => join(dirname(path), 'orphan-events.log')

/** Parses every line of the log. Throws if a line has another format. */
function linesOf(file) {
  if (!existsSync(file)) return []
  const lines = readFileSync(file, 'utf8').split('\n')
  assert.equal(lines.pop(), '', 'the last line is complete')
  return lines.map((line) => {
    const parts = LINE.exec(line)
    assert.ok(parts, `the line does not have the format of the log: ${line}`)
    const [, at, what, pid, cmd, age, status, reason] = parts
    return { at, what, pid: Number(pid), cmd: JSON.parse(cmd), age, status, reason: JSON.parse(reason) }
  })
}

/** Collects the orphan events that a supervisor emits from now on. */
function collectEvents(supervisor) {
  const events = []
  for (const name of names) supervisor.on(`orphan:${name}`, (event) => events.push({ name, ...event }))
  return events
}

/** Reaps in another process, and returns its events and results when it has exited. */
function reapInAnotherBot(registryPath) {
  const code = `
    import { createSupervisor } from 'spawn-owned'
    const bot = createSupervisor({ registryPath: ${JSON.stringify(registryPath)} })
    const names = []
    for (const name of ${JSON.stringify(names)}) bot.on('orphan:' + name, () => names.push(name))
    const { killed } = await bot.reapOrphans()
    const total = bot.metrics().run_reconcile_orphans_total
    console.log(JSON.stringify({ killed, names, total }))`
  return JSON.parse(execFileSync(process.execPath, ['--input-type=module', '-e', code], { encoding: 'utf8' }))
}

/** Asserts that the events and the log agree. Returns `<what> <status>` for each. */
function assertLogged(received, path) {
  const events = received.map(({ name, pid, status, reason }) => [name.toUpperCase(), pid, status, reason])
  const lines = linesOf(logFile(path)).map(({ what, pid, status, reason }) => [what, pid, status, reason])
  assert.deepEqual(events, lines)
  return lines.map(([what, , status]) => `${what} ${status}`)
}

describe('events and log lines', together, () => {
  test('report that an orphan is detected, then killed', options, async (t) => {
    const { next, path, pid, record, witness } = await crashed(t, { commandPreview: 'claude -p "hello"' })
    const events = collectEvents(next)
    next.once('orphan:detected', () => assertAlive(witness))
    next.once('orphan:killed', () => assertGone(witness))
    const from = Date.now()
    await next.reapOrphans()
    assert.deepEqual(assertLogged(events, path), ['DETECTED confirmed', 'KILLED confirmed'])
    for (const { name, atMs, ageMs, ...rest } of events) {
      const { reason } = rest
      const command = 'claude -p "hello"'
      assert.deepEqual(
        rest,
        { pid, runId: record.runId, command, status: 'confirmed', reason, dryRun: false },
        name,
      )
      assert.match(reason, /recorded process is alive/)
      assert.ok(atMs >= from && atMs <= Date.now() && ageMs === atMs - record.startedAt)
    }
    for (const { at, cmd, age } of linesOf(logFile(path))) {
      assert.equal(new Date(at).toISOString(), at)
      assert.ok(Date.parse(at) >= from && Date.parse(at) <= Date.now())
      assert.deepEqual([cmd, /^\d+s$/.test(age)], ['claude -p "hello"', true])
    }
    if (!isWindows) assert.equal(statSync(logFile(path)).mode & 0o777, 0o600)
    assert.equal(next.metrics().run_reconcile_orphans_total, 1)
  })

  test(
    'say DETECTED before the first signal, and KILLED when the orphan is gone',
    posixOnly(NOT_FROM_OUTSIDE, options),
    async (t) => {
      const { next, path, witness } = await crashed(t, { tree: deaf })
      const reaping = next.reapOrphans({ graceMs: 1000 })
      await until(() => witness.count(CLEANED_UP) > 0, 'it has received SIGTERM')
      assert.deepEqual(
        linesOf(logFile(path)).map(({ what }) => what),
        ['DETECTED'],
      )
      assertAlive(witness)
      await reaping
      assert.deepEqual(
        linesOf(logFile(path)).map(({ what }) => what),
        ['DETECTED', 'KILLED'],
      )
    },
  )

  test('report an orphan that a policy leaves or adopts as skipped', options, async (t) => {
    const { next, path, runId } = await kept(t)
    const events = collectEvents(next)
    await next.reapOrphans({ policy: () => 'leave' })
    await next.reapOrphans({ policy: 'adopt' })
    assert.deepEqual(
      assertLogged(events, path),
      Array(2).fill(['DETECTED confirmed', 'SKIPPED confirmed']).flat(),
    )
    assert.match(events[1].reason, /^left by policy \(/)
    assert.match(events[3].reason, /^adopted by policy \(/)
    assert.equal(next.metrics().run_reconcile_orphans_total, 1)
    await (await next.adopt(runId)).cancel()
    assert.equal(
      next.metrics().run_reconcile_orphans_total,
      1,
      'the adoption of the handle is not counted again',
    )
  })

  test('report an entry whose processes are all gone as skipped', options, async (t) => {
    const { next, record, path } = await crashed(t)
    await next.reapOrphans()
    const again = freshRegistry([record])
    const reaper = supervise(again)
    const events = collectEvents(reaper)
    await reaper.reapOrphans()
    assert.deepEqual(assertLogged(events, again), ['SKIPPED dead'])
    assert.equal(reaper.metrics().run_reconcile_orphans_total, 0)
    assert.notEqual(path, again)
  })

  test('report an entry whose PID is reused as skipped', options, async (t) => {
    const { next, path, witness } = await mistaken(t, ({ startToken }) => ({ startToken: past(startToken) }))
    const events = collectEvents(next)
    await next.reapOrphans()
    assert.deepEqual(assertLogged(events, path), ['SKIPPED reused'])
    assertAlive(witness)
  })

  test(
    'report a process that cannot be identified as skipped',
    linuxOnly(NO_NAMESPACES, options),
    async (t) => {
      const otherNamespace = ({ startToken }) => ({ startToken: altered(startToken, { ns: 1 }) })
      const { next, path, witness } = await mistaken(t, otherNamespace)
      const events = collectEvents(next)
      await next.reapOrphans()
      assert.deepEqual(assertLogged(events, path), ['DETECTED unproven', 'SKIPPED unproven'])
      assertAlive(witness)
    },
  )

  test('report a process that must not be signalled as skipped', options, async (t) => {
    const me = { pid: process.pid, pgid: process.pid, startToken: captureStartToken(process.pid) }
    const { next, path } = await mistaken(t, () => me)
    const events = collectEvents(next)
    await next.reapOrphans()
    assert.deepEqual(assertLogged(events, path), ['DETECTED refused', 'SKIPPED refused'])
  })

  test('report an orphan that another bot has claimed first as skipped', options, async (t) => {
    const { path, pid } = await crashed(t)
    const slow = supervise(path)
    const events = collectEvents(slow)
    let fast
    // The policy is called between the plan and the claim. The other bot reaps in this window.
    const report = await slow.reapOrphans({
      policy: () => {
        fast ??= reapInAnotherBot(path)
        return 'terminate'
      },
    })
    assert.deepEqual([fast.killed, report.killed], [[pid], []])
    assert.deepEqual(fast.names, ['detected', 'killed'])
    assert.deepEqual(
      events.map(({ name }) => name),
      ['detected', 'skipped'],
    )
    assert.deepEqual([fast.total, slow.metrics().run_reconcile_orphans_total], [1, 0])
  })

  test('do not mention the runs of a live bot', options, async (t) => {
    const { next, path, witness } = await owned(t)
    const events = collectEvents(next)
    await next.reapOrphans()
    assert.deepEqual([events, existsSync(logFile(path))], [[], false])
    assertAlive(witness)
  })

  test('of a dry run are events only: it detects, and writes no line', options, async (t) => {
    const { next, path, witness } = await crashed(t)
    const events = collectEvents(next)
    await next.reapOrphans({ dryRun: true })
    assert.deepEqual(
      events.map(({ name, dryRun }) => [name, dryRun]),
      [['detected', true]],
    )
    assert.equal(existsSync(logFile(path)), false)
    assertAlive(witness)
    assert.equal(next.metrics().run_reconcile_orphans_total, 0)
    await next.reapOrphans()
  })

  test(
    'report each orphan as failed, and no process is signalled, if the registry cannot be written',
    options,
    async (t) => {
      const { record, witness, next } = await crashed(t)
      const path = freshRegistry([record])
      // Reading needs no lock; a claim does.
      mkdirSync(`${path}.lock`)
      const reaper = supervise(path)
      const events = collectEvents(reaper)
      await assert.rejects(reaper.reapOrphans(), { code: 'ERR_OWNED_REGISTRY_NOT_A_FILE' })
      assert.deepEqual(assertLogged(events, path), ['DETECTED confirmed', 'FAILED confirmed'])
      assert.match(events[1].reason, /is not a plain file/)
      assertAlive(witness)
      await next.reapOrphans()
    },
  )

  test('have a counter that includes adoptions', options, async (t) => {
    const { next, runId } = await kept(t)
    const run = await next.adopt(runId)
    assert.equal(next.metrics().run_reconcile_orphans_total, 1)
    await run.cancel()
  })
})

describe('the event log', together, () => {
  test('cannot be forged by the text of a command', options, async (t) => {
    const commandPreview =
      'x" status=dead reason=""\n2026-01-01T00:00:00.000Z KILLED pid=1\r\u001b[2J\u2028\\'
    const { next, path, pid } = await crashedAs(t, () => ({ commandPreview }))
    // The reader of the registry replaces control characters. The log does not rely on that
    // (src/registry/orphan_log/tests.rs).
    const shown = commandPreview.replace(/\p{Cc}/gu, '\ufffd')
    await next.reapOrphans()
    assert.deepEqual(
      linesOf(logFile(path)).map(({ what, pid: logged, cmd }) => [what, logged, cmd]),
      [
        ['DETECTED', pid, shown],
        ['KILLED', pid, shown],
      ],
    )
  })

  test('is written to eventLogPath, and to no file if that is null', options, async (t) => {
    const { record } = await crashed(t)
    const dead = {
      ...record,
      state: 'exited',
      exit: { atMs: 1, reason: 'exit', ending: 'root-exit', exitCode: 0, signal: null, survivors: 0 },
    }
    const [withOtherPath, withoutLog] = [freshRegistry([dead]), freshRegistry([dead])]
    const eventLogPath = join(dirname(dirname(withOtherPath)), 'logs', 'mine.log')
    await supervise(withOtherPath, { eventLogPath }).reapOrphans()
    assert.deepEqual([linesOf(eventLogPath).length, existsSync(logFile(withOtherPath))], [1, false])
    await supervise(withoutLog, { eventLogPath: null }).reapOrphans()
    assert.equal(existsSync(logFile(withoutLog)), false)
  })

  test(
    'causes one warning if it cannot be written, and reaping goes on',
    posixOnly(NO_LINKS, options),
    async (t) => {
      const { next, path, witness } = await crashed(t)
      const target = join(dirname(path), 'target')
      symlinkSync(target, logFile(path))
      const { killed } = await next.reapOrphans()
      assert.equal(killed.length, 1)
      assertGone(witness)
      assert.equal(existsSync(target), false)
      const warnings = () => next.events.filter(({ kind }) => kind === 'event-log')
      await until(() => warnings().length > 0, 'the warning arrives')
      assert.deepEqual(
        warnings().map(({ type, path: where }) => [type, where]),
        [['registry', logFile(path)]],
      )
      assert.match(warnings()[0].message, /symbolic link.*options\.eventLogPath/s)
    },
  )

  test(
    'has a line for each of ten thousand dead entries, and is renamed when it is full',
    options,
    async (t) => {
      // The longest preview possible, so that the size does not depend on the path of this folder.
      const { record } = await crashed(t, { commandPreview: 'x'.repeat(120) })
      const startToken = (pid) =>
        altered(record.startToken, { pid, boot: '00000000-0000-0000-0000-000000000000' })
      const entries = Array.from({ length: 10_000 }, (_, index) => ({
        ...record,
        pid: 1000 + index,
        runId: `run-${index}`,
        startToken: startToken(1000 + index),
        keeper: undefined,
        job: undefined,
        members: undefined,
      }))
      const path = freshRegistry(entries)
      const reaper = supervise(path)
      await reaper.reapOrphans()
      assert.equal(new Set(linesOf(logFile(path)).map(({ pid }) => pid)).size, 10_000)
      // Wait for the checkpoint. Otherwise it replaces the file that this test writes next, or the
      // journal still says that these entries are gone.
      await fileHas(path, 0)
      const hasJournal = () => [`${path}.journal`, `${path}.journal.old`].some((file) => existsSync(file))
      await until(() => !hasJournal(), 'the journal is empty')
      writeFileSync(path, JSON.stringify({ version: 1, entries: entries.slice(0, 1) }))
      await supervise(path).reapOrphans()
      assert.equal(linesOf(logFile(path)).length, 1)
      assert.equal(linesOf(`${logFile(path)}.1`).length, 10_000)
    },
  )

  test('can be shared by several bots', options, async (t) => {
    const path = freshRegistry()
    const runs = []
    for (let i = 0; i < 4; i++) runs.push(await crashed(t, { path }))
    const bots = await Promise.all([startBot(t, path), startBot(t, path)])
    await Promise.all(bots.map((bot) => bot.ask('reap')))
    const killed = linesOf(logFile(path)).filter(({ what }) => what === 'KILLED')
    assert.deepEqual(killed.map(({ pid }) => pid).toSorted(), runs.map(({ pid }) => pid).toSorted())
  })

  for (const suffix of ['', '.journal', '.lock', '.scopes']) {
    test(`cannot have the path of the registry${suffix}`, () => {
      const path = freshRegistry()
      const refused = { code: 'ERR_INVALID_ARG_VALUE', message: /options\.eventLogPath/ }
      assert.throws(() => supervise(path, { eventLogPath: `${path}${suffix}` }), refused)
    })
  }

  for (const [eventLogPath, code] of [
    [7, 'ERR_INVALID_ARG_TYPE'],
    ['', 'ERR_INVALID_ARG_VALUE'],
    ['a\0b', 'ERR_INVALID_ARG_VALUE'],
  ]) {
    test(`cannot have the path ${JSON.stringify(eventLogPath)}`, () => {
      const message = /options\.eventLogPath/
      assert.throws(() => supervise(freshRegistry(), { eventLogPath }), { code, message })
    })
  }
})
