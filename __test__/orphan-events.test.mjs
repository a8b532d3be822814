// What is told, and written down, about orphans: one event and one line for each decision, the same in both; before anything is
// signalled, and afterwards.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
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
} from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { crashed, crashedAs, GRACE_MS, kept, mistaken, owned } from './support/orphans.mjs'
import {
  isWindows,
  linuxOnly,
  NO_LINKS,
  NO_NAMESPACES,
  NOT_FROM_OUTSIDE,
  posixOnly,
} from './support/system.mjs'
import { CLEANED_UP } from './support/witness.mjs'

const options = { timeout: 30_000 }
const together = { timeout: 60_000, concurrency: 4 }
const deaf = { command: (path) => [program('marks-every-sigterm'), [path]], ready: 1 }
const names = ['detected', 'killed', 'skipped', 'failed']
const LINE =
  /^(\S+) ([A-Z]+) pid=(\d+) cmd=("(?:[^"\\]|\\.)*") age=(\d+s|unknown) status=([a-z]+) reason=("(?:[^"\\]|\\.)*")$/

const logFile = (path) => join(dirname(path), 'orphan-events.log')

/** Every line, taken apart. One that is none is an error. */
function linesOf(file) {
  if (!existsSync(file)) return []
  const lines = readFileSync(file, 'utf8').split('\n')
  assert.equal(lines.pop(), '', 'the last line is whole')
  return lines.map((line) => {
    const parts = LINE.exec(line)
    assert.ok(parts, `no line of ours: ${line}`)
    const [, at, what, pid, cmd, age, status, reason] = parts
    return { at, what, pid: Number(pid), cmd: JSON.parse(cmd), age, status, reason: JSON.parse(reason) }
  })
}

/** What a supervisor says of orphans from here on. */
function listen(supervisor) {
  const heard = []
  for (const name of names) supervisor.on(`orphan:${name}`, (event) => heard.push({ name, ...event }))
  return heard
}

/** Both must say the same. Returns it, in short. */
function told(heard, path) {
  const events = heard.map(({ name, pid, status, reason }) => [name.toUpperCase(), pid, status, reason])
  const lines = linesOf(logFile(path)).map(({ what, pid, status, reason }) => [what, pid, status, reason])
  assert.deepEqual(events, lines)
  return lines.map(([what, , status]) => `${what} ${status}`)
}

describe('events and lines', together, () => {
  test('of an orphan that is ended', options, async (t) => {
    const { next, path, pid, record, witness } = await crashed(t, { commandPreview: 'claude -p "hello"' })
    const heard = listen(next)
    next.once('orphan:detected', () => assertAlive(witness))
    next.once('orphan:killed', () => assertGone(witness))
    const from = Date.now()
    await next.reapOrphans()
    assert.deepEqual(told(heard, path), ['DETECTED confirmed', 'KILLED confirmed'])
    for (const { name, atMs, ageMs, ...rest } of heard) {
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
    'DETECTED is written before the first signal, KILLED when it is gone',
    posixOnly(NOT_FROM_OUTSIDE, options),
    async (t) => {
      const { next, path, witness } = await crashed(t, { tree: deaf })
      const reaping = next.reapOrphans({ graceMs: 1000 })
      await until(() => witness.count(CLEANED_UP) > 0, 'it has got SIGTERM')
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

  test('of what is left, or taken over, by policy', options, async (t) => {
    const { next, path, runId } = await kept(t)
    const heard = listen(next)
    await next.reapOrphans({ policy: () => 'leave' })
    await next.reapOrphans({ policy: 'adopt' })
    assert.deepEqual(told(heard, path), Array(2).fill(['DETECTED confirmed', 'SKIPPED confirmed']).flat())
    assert.match(heard[1].reason, /^left by policy \(/)
    assert.match(heard[3].reason, /^taken over by policy \(/)
    assert.equal(next.metrics().run_reconcile_orphans_total, 1)
    await (await next.adopt(runId)).cancel()
    assert.equal(next.metrics().run_reconcile_orphans_total, 1, 'its handle is no second one')
  })

  test('of entries of which nothing is left', options, async (t) => {
    const { next, record, path } = await crashed(t)
    await next.reapOrphans()
    const again = freshRegistry([record])
    const reaper = supervise(again)
    const heard = listen(reaper)
    await reaper.reapOrphans()
    assert.deepEqual(told(heard, again), ['SKIPPED dead'])
    assert.equal(reaper.metrics().run_reconcile_orphans_total, 0)
    assert.notEqual(path, again)
  })

  test('of a PID that is somebody else’s now', options, async (t) => {
    const { next, path, witness } = await mistaken(t, ({ startToken }) => ({ startToken: past(startToken) }))
    const heard = listen(next)
    await next.reapOrphans()
    assert.deepEqual(told(heard, path), ['SKIPPED reused'])
    assertAlive(witness)
  })

  test('of what cannot be proven', linuxOnly(NO_NAMESPACES, options), async (t) => {
    const elsewhere = ({ startToken }) => ({ startToken: altered(startToken, { ns: 1 }) })
    const { next, path, witness } = await mistaken(t, elsewhere)
    const heard = listen(next)
    await next.reapOrphans()
    assert.deepEqual(told(heard, path), ['DETECTED unproven', 'SKIPPED unproven'])
    assertAlive(witness)
  })

  test('of what must not be signalled', options, async (t) => {
    const me = { pid: process.pid, pgid: process.pid, startToken: captureStartToken(process.pid) }
    const { next, path } = await mistaken(t, () => me)
    const heard = listen(next)
    await next.reapOrphans()
    assert.deepEqual(told(heard, path), ['DETECTED refused', 'SKIPPED refused'])
  })

  test('of one that another bot was faster to take', options, async (t) => {
    const { path, pid } = await crashed(t, { tree: deaf })
    const reapers = [supervise(path), supervise(path)]
    const heard = reapers.map(listen)
    const reports = await Promise.all(reapers.map((reaper) => reaper.reapOrphans({ graceMs: GRACE_MS })))
    assert.deepEqual(
      reports.flatMap(({ killed }) => killed),
      [pid],
    )
    const ends = heard.map((events) => events.map(({ name }) => name).join()).toSorted()
    assert.deepEqual(ends, ['detected,killed', 'detected,skipped'])
    const total = reapers.map((reaper) => reaper.metrics().run_reconcile_orphans_total)
    assert.deepEqual(total.toSorted(), [0, 1])
  })

  test('none of the runs of a bot that lives', options, async (t) => {
    const { next, path, witness } = await owned(t)
    const heard = listen(next)
    await next.reapOrphans()
    assert.deepEqual([heard, existsSync(logFile(path))], [[], false])
    assertAlive(witness)
  })

  test('a dry run detects, and writes nothing', options, async (t) => {
    const { next, path, witness } = await crashed(t)
    const heard = listen(next)
    await next.reapOrphans({ dryRun: true })
    assert.deepEqual(
      heard.map(({ name, dryRun }) => [name, dryRun]),
      [['detected', true]],
    )
    assert.equal(existsSync(logFile(path)), false)
    assertAlive(witness)
    assert.equal(next.metrics().run_reconcile_orphans_total, 0)
    await next.reapOrphans()
  })

  test(
    'if the registry cannot be written, nobody is touched, and that is said of each',
    options,
    async (t) => {
      const { record, witness, next } = await crashed(t)
      const path = freshRegistry([record])
      // To look needs no lock, to claim does.
      mkdirSync(`${path}.lock`)
      const reaper = supervise(path)
      const heard = listen(reaper)
      await assert.rejects(reaper.reapOrphans(), { code: 'ERR_OWNED_REGISTRY_NOT_A_FILE' })
      assert.deepEqual(told(heard, path), ['DETECTED confirmed', 'FAILED confirmed'])
      assert.match(heard[1].reason, /is not a plain file/)
      assertAlive(witness)
      await next.reapOrphans()
    },
  )

  test('an adoption counts as well', options, async (t) => {
    const { next, runId } = await kept(t)
    const run = await next.adopt(runId)
    assert.equal(next.metrics().run_reconcile_orphans_total, 1)
    await run.cancel()
  })
})

describe('the log', together, () => {
  test('is not forged by a command', options, async (t) => {
    const commandPreview =
      'x" status=dead reason=""\n2026-01-01T00:00:00.000Z KILLED pid=1\r\u001b[2J\u2028\\'
    const { next, path, pid } = await crashedAs(t, () => ({ commandPreview }))
    // Whoever reads the registry lets no control character in; the log does not rely on that (src/observe/orphan_log/tests.rs).
    const shown = commandPreview.replace(/\p{Cc}/gu, '\ufffd')
    await next.reapOrphans()
    assert.deepEqual(
      linesOf(logFile(path)).map(({ what, pid: number, cmd }) => [what, number, cmd]),
      [
        ['DETECTED', pid, shown],
        ['KILLED', pid, shown],
      ],
    )
  })

  test('is where eventLogPath says, or nowhere', options, async (t) => {
    const { record } = await crashed(t)
    const dead = {
      ...record,
      state: 'exited',
      exit: { atMs: 1, reason: 'exit', ending: 'root-exit', exitCode: 0, signal: null, survivors: 0 },
    }
    const [elsewhere, nowhere] = [freshRegistry([dead]), freshRegistry([dead])]
    const eventLogPath = join(dirname(dirname(elsewhere)), 'logs', 'mine.log')
    await supervise(elsewhere, { eventLogPath }).reapOrphans()
    assert.deepEqual([linesOf(eventLogPath).length, existsSync(logFile(elsewhere))], [1, false])
    await supervise(nowhere, { eventLogPath: null }).reapOrphans()
    assert.equal(existsSync(logFile(nowhere)), false)
  })

  test('that cannot be written is told once, and stops nothing', posixOnly(NO_LINKS, options), async (t) => {
    const { next, path, witness } = await crashed(t)
    const target = join(dirname(path), 'target')
    symlinkSync(target, logFile(path))
    const { killed } = await next.reapOrphans()
    assert.equal(killed.length, 1)
    assertGone(witness)
    assert.equal(existsSync(target), false)
    const trouble = () => next.events.filter(({ kind }) => kind === 'event-log')
    await until(() => trouble().length > 0, 'that is told')
    assert.deepEqual(
      trouble().map(({ type, path: where }) => [type, where]),
      [['registry', logFile(path)]],
    )
    assert.match(trouble()[0].message, /symbolic link.*options\.eventLogPath/s)
  })

  test(
    'of ten thousand dead entries has a line for each, and is moved aside when it is full',
    options,
    async (t) => {
      // As long as previews get, wherever this folder is.
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
      // Or it would put its own in the place of ours, or still have it on record that they are gone.
      await fileHas(path, 0)
      const noted = () => [`${path}.journal`, `${path}.journal.old`].some((file) => existsSync(file))
      await until(() => !noted(), 'the journal is empty')
      writeFileSync(path, JSON.stringify({ version: 1, entries: entries.slice(0, 1) }))
      await supervise(path).reapOrphans()
      assert.equal(linesOf(logFile(path)).length, 1)
      assert.equal(linesOf(`${logFile(path)}.1`).length, 10_000)
    },
  )

  test('is shared by bots', options, async (t) => {
    const path = freshRegistry()
    const runs = []
    for (let i = 0; i < 4; i++) runs.push(await crashed(t, { path }))
    const bots = await Promise.all([startBot(t, path), startBot(t, path)])
    await Promise.all(bots.map((bot) => bot.ask('reap')))
    const killed = linesOf(logFile(path)).filter(({ what }) => what === 'KILLED')
    assert.deepEqual(killed.map(({ pid }) => pid).toSorted(), runs.map(({ pid }) => pid).toSorted())
  })

  for (const suffix of ['', '.journal', '.lock', '.scopes']) {
    test(`is not in the place of the registry${suffix}`, () => {
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
    test(`is not at ${JSON.stringify(eventLogPath)}`, () => {
      const message = /options\.eventLogPath/
      assert.throws(() => supervise(freshRegistry(), { eventLogPath }), { code, message })
    })
  }
})
