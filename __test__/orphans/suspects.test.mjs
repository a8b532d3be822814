// Suspects: processes without a registry entry that look like agents. Which processes are
// suspected, which are not, and that only `force` ends them.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, symlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { captureStartToken, suspectPatterns } from 'spawn-owned'
import {
  assertAlive,
  assertGone,
  filesOf,
  freshRegistry,
  startBot,
  stateOf,
  supervise,
} from '../support/bots.mjs'
import { crashed } from '../support/orphans.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { agent, agentScript, child, project, stray } from '../support/strays.mjs'
import { isWindows, NO_PROC, posixOnly } from '../support/system.mjs'

const options = { timeout: 30_000 }
const together = { timeout: 120_000, concurrency: 4 }
const names = ['detected', 'killed', 'skipped', 'failed']

const pidsOf = (suspects) => suspects.map(({ pid }) => pid)

/** Collects the orphan events of a supervisor from now on: name, PID and status. */
function collectEvents(supervisor) {
  const events = []
  for (const name of names)
    supervisor.on(`orphan:${name}`, ({ pid, status }) => events.push([name.toUpperCase(), pid, status]))
  return events
}

/** The same values from the event log. */
function logged(path) {
  const file = join(dirname(path), 'orphan-events.log')
  const lines = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []
  return lines.map((line) => {
    const [, what, pid, status] = /^\S+ ([A-Z]+) pid=(\d+) cmd=.* status=([a-z]+) reason=/.exec(line)
    return [what, Number(pid), status]
  })
}

describe('findOrphans suspects', together, () => {
  test(
    'a process whose name and directory both match, not one alone',
    posixOnly(NO_PROC, options),
    async (t) => {
      const here = supervise(freshRegistry())
      const projectDir = project(t)
      const suspect = await stray(t, { cwd: projectDir })
      const inOtherDirectory = await stray(t, { cwd: project(t) })
      const withOtherName = await stray(t, { cwd: projectDir, name: 'editor' })
      const mentioned = await stray(t, { cwd: projectDir, name: 'reader', args: ['claude', '/bin/claude'] })
      const { confirmed, suspected } = await here.findOrphans({ projectDir })
      assert.deepEqual([confirmed, suspected.length], [[], 1], JSON.stringify(suspected))
      const [{ ageMs, command, ppid, ...rest }] = suspected
      assert.deepEqual(rest, {
        pid: suspect.pid,
        startToken: captureStartToken(suspect.pid),
        cwd: projectDir,
        pattern: 'claude',
        reason: `matches "claude" and runs in ${projectDir}`,
      })
      assert.ok(ageMs >= 0 && ageMs < options.timeout, `${ageMs} ms`)
      assert.ok(command.length <= 120 && command.includes('claude'), command)
      assert.notEqual(ppid, process.pid)
      for (const { witness } of [suspect, inOtherDirectory, withOtherName, mentioned]) assertAlive(witness)
    },
  )

  test(
    'a process by its real directory, also if projectDir is a link',
    posixOnly(NO_PROC, options),
    async (t) => {
      const here = supervise(freshRegistry())
      const cwd = project(t)
      const link = join(project(t), 'link')
      symlinkSync(cwd, link)
      const { pid } = await stray(t, { cwd })
      assert.deepEqual(pidsOf((await here.findOrphans({ projectDir: link })).suspected), [pid])
      assert.deepEqual((await here.findOrphans({ projectDir: link, suspects: false })).suspected, [])
    },
  )

  test(
    'no process that has an owner, in this or another registry',
    posixOnly(NO_PROC, options),
    async (t) => {
      const [path, projectDir] = [freshRegistry(), project(t)]
      const here = supervise(path)
      for (const registry of [path, freshRegistry()]) {
        const bot = await startBot(t, registry)
        const witness = openWitness(t)
        await bot.ask('spawn', agent(t), [witness.path], { cwd: projectDir })
        await witness.ready(1)
      }
      const registered = await stray(t, { cwd: projectDir })
      here.registerProcess({ pid: registered.pid })
      assert.deepEqual((await here.findOrphans({ projectDir })).suspected, [])
      // Without its entry it is suspected.
      here.unregisterProcess({ pid: registered.pid })
      assert.deepEqual(pidsOf((await here.findOrphans({ projectDir })).suspected), [registered.pid])
    },
  )

  test('no process that is a confirmed orphan', posixOnly(NO_PROC, options), async (t) => {
    const projectDir = project(t)
    const command = (witness) => [agent(t), [witness]]
    const { next, pid, witness } = await crashed(t, { tree: { command, ready: 1 }, cwd: projectDir })
    const { confirmed, suspected } = await next.findOrphans({ projectDir })
    assert.deepEqual([pidsOf(confirmed), suspected], [[pid], []])
    assert.deepEqual([confirmed[0].decision, confirmed[0].outcome], ['end', 'planned'])
    assertAlive(witness)
    await next.endOrphans({ projectDir })
    assertGone(witness)
  })
})

// In sequence, and apart from the rest: each process that this file starts descends from this
// process.
describe('findOrphans suspects a process', { timeout: 120_000 }, () => {
  test('because it descends from this bot', options, async (t) => {
    const here = supervise(freshRegistry())
    const { pid } = await child(t, { name: isWindows ? 'claude.exe' : 'claude' })
    const { suspected } = await here.findOrphans({ projectDir: project(t) })
    const found = suspected.find((suspect) => suspect.pid === pid)
    assert.equal(found?.reason, `matches "claude" and descends from bot ${process.pid}`)
  })

  test('because it descends from another bot of the registry', posixOnly(NO_PROC, options), async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const pid = await bot.ask('child', agent(t), [witness.path], { cwd: '/' })
    await witness.ready(1)
    const projectDir = project(t)
    // An unrelated registry does not know the bot. It sees only that this process is an ancestor.
    const stranger = supervise(freshRegistry())
    const [before] = (await stranger.findOrphans({ projectDir })).suspected.filter((it) => it.pid === pid)
    assert.match(before.reason, new RegExp(`descends from bot ${process.pid}$`))

    const run = await bot.ask('spawn', program('stays'), [openWitness(t).path])
    const { suspected } = await supervise(path).findOrphans({ projectDir })
    const found = suspected.find((suspect) => suspect.pid === pid)
    assert.equal(found?.reason, `matches "claude" and descends from bot ${bot.pid}`)
    await bot.ask('cancelRun', run.runId)
  })
})

describe('the option patterns', together, () => {
  test('takes names, names with *, and regular expressions', posixOnly(NO_PROC, options), async (t) => {
    const here = supervise(freshRegistry())
    const projectDir = project(t)
    const { pid } = await stray(t, { cwd: projectDir, name: 'My-Agent.sh' })
    for (const [pattern, matches] of [
      ['my-agent', true],
      ['my-*', true],
      ['*AGENT', true],
      ['agent', false],
      ['my.agent', false],
      [/agent$/i, true],
      [/^agent/i, false],
      [/agent/gi, true],
    ]) {
      // Twice, because a regular expression with the flag g keeps lastIndex.
      for (let i = 0; i < 2; i++) {
        const { suspected } = await here.findOrphans({ projectDir, patterns: ['other', pattern] })
        const expected = matches ? [[pid, String(pattern)]] : []
        assert.deepEqual(
          suspected.map((it) => [it.pid, it.pattern]),
          expected,
          String(pattern),
        )
      }
    }
    assert.deepEqual((await here.findOrphans({ projectDir, patterns: [] })).suspected, [])
  })

  test('also matches the script that a shell or runtime executes', posixOnly(NO_PROC, options), async (t) => {
    const here = supervise(freshRegistry())
    const projectDir = project(t)
    const by = (witness) => ['sh', agentScript(t, 'mcp-server-files.sh'), program('stays'), witness]
    const { pid } = await stray(t, { cwd: projectDir, by })
    const [found] = (await here.findOrphans({ projectDir })).suspected
    assert.deepEqual([found.pid, found.pattern], [pid, 'mcp-*'])
  })

  test('defaults to the names of agents and MCP servers', () => {
    for (const name of ['claude', 'codex', 'opencode', 'gemini', 'aider', 'crush', 'amp'])
      assert.ok(suspectPatterns.includes(name), name)
    assert.ok(Object.isFrozen(suspectPatterns))
  })

  test('and projectDir are checked before any process is inspected', async () => {
    const here = supervise(freshRegistry())
    for (const [wrong, code] of [
      [{ patterns: 'claude' }, 'ERR_INVALID_ARG_TYPE'],
      [{ patterns: [1] }, 'ERR_INVALID_ARG_TYPE'],
      [{ patterns: [''] }, 'ERR_INVALID_ARG_VALUE'],
      [{ patterns: ['**'] }, 'ERR_INVALID_ARG_VALUE'],
      [{ projectDir: 1 }, 'ERR_INVALID_ARG_TYPE'],
      [{ projectDir: isWindows ? 'C:\\' : '/' }, 'ERR_INVALID_ARG_VALUE'],
    ]) {
      await assert.rejects(here.findOrphans(wrong), { code })
      await assert.rejects(here.endOrphans({ force: true, ...wrong }), { code })
      assert.throws(() => here.watchOrphans(wrong), { code })
    }
    await assert.rejects(here.endOrphans({ force: 1 }), { code: 'ERR_INVALID_ARG_TYPE' })
    await assert.rejects(here.findOrphans({ suspects: 1 }), { code: 'ERR_INVALID_ARG_TYPE' })
  })
})

describe('endOrphans', together, () => {
  test('only reports suspects without force', posixOnly(NO_PROC, options), async (t) => {
    const path = freshRegistry()
    const here = supervise(path)
    const projectDir = project(t)
    const { pid, witness } = await stray(t, { cwd: projectDir })
    const events = collectEvents(here)
    const { suspected, killed } = await here.endOrphans({ projectDir })
    assert.deepEqual([killed, suspected.map((it) => [it.pid, it.outcome])], [[], [[pid, 'reported']]])
    assertAlive(witness)
    assert.deepEqual(events, [
      ['DETECTED', pid, 'suspected'],
      ['SKIPPED', pid, 'suspected'],
    ])
    assert.deepEqual(logged(path), events)
  })

  test(
    'with force ends a suspect and its descendants, and no bystander',
    posixOnly(NO_PROC, options),
    async (t) => {
      const path = freshRegistry()
      const here = supervise(path)
      const projectDir = project(t)
      const suspect = await stray(t, { cwd: projectDir })
      const inOtherDirectory = await stray(t, { cwd: project(t) })
      const withOtherName = await stray(t, { cwd: projectDir, name: 'editor' })
      const events = collectEvents(here)
      here.once('orphan:detected', () => assertAlive(suspect.witness))
      here.once('orphan:killed', () => assertGone(suspect.witness))
      const { suspected, failed } = await here.endOrphans({ projectDir, force: true, graceMs: 1000 })
      assertGone(suspect.witness)
      for (const { witness } of [inOtherDirectory, withOtherName]) assertAlive(witness)
      assert.deepEqual([failed, suspected.map((it) => [it.pid, it.outcome])], [[], [[suspect.pid, 'ended']]])
      assert.deepEqual(events, [
        ['DETECTED', suspect.pid, 'suspected'],
        ['KILLED', suspect.pid, 'suspected'],
      ])
      assert.deepEqual(logged(path), events)
    },
  )

  test(
    'with force does not end a process that only shares the process group',
    posixOnly(NO_PROC, options),
    async (t) => {
      const projectDir = project(t)
      const [suspect, bystander] = [openWitness(t), openWitness(t)]
      // As in an interactive shell: the first process of a pipeline leads its process group.
      const pipeline = 'set -m; "$1" "$2" | "$3" "$4" & wait'
      const words = [program('stays'), suspect.path, program('ignores-sigterm'), bystander.path]
      const shell = spawn('bash', ['-c', pipeline, 'bash', ...words], { cwd: projectDir, stdio: 'ignore' })
      const ended = once(shell, 'exit')
      await Promise.all([suspect.ready(1), bystander.ready(2)])
      const here = supervise(freshRegistry())
      const { suspected } = await here.endOrphans({ projectDir, patterns: ['stays'], force: true })
      assert.deepEqual(
        suspected.map(({ outcome }) => outcome),
        ['ended'],
      )
      assertGone(suspect)
      assertAlive(bystander)
      bystander.close()
      await ended
    },
  )

  test('with dryRun changes nothing, even with force', posixOnly(NO_PROC, options), async (t) => {
    const projectDir = project(t)
    const { pid, witness } = await stray(t, { cwd: projectDir })
    const run = await crashed(t)
    const before = filesOf(run.path)
    const report = await run.next.endOrphans({ projectDir, force: true, dryRun: true })
    assert.deepEqual(
      report.suspected.map((it) => [it.pid, it.outcome]),
      [[pid, 'planned']],
    )
    assert.deepEqual([report.killed, report.decisions[0].decision], [[], 'end'])
    assert.deepEqual(filesOf(run.path), before)
    assertAlive(witness)
    assertAlive(run.witness)
    await run.next.reapOrphans()
  })

  test('skips processes that are younger than olderThanMs', posixOnly(NO_PROC, options), async (t) => {
    const projectDir = project(t)
    const { pid, witness } = await stray(t, { cwd: projectDir })
    const run = await crashed(t)
    const spared = await run.next.endOrphans({ projectDir, force: true, olderThanMs: 3_600_000 })
    assert.deepEqual(
      spared.suspected.map((it) => [it.pid, it.outcome, it.error]),
      [[pid, 'skipped', 'it was started less than 3600000 ms ago']],
    )
    assert.deepEqual(pidsOf(spared.skipped), [run.pid])
    assertAlive(witness)
    assertAlive(run.witness)
    const report = await run.next.endOrphans({ projectDir, force: true, olderThanMs: 1 })
    assert.deepEqual([report.killed, report.suspected[0].outcome], [[run.pid], 'ended'])
    assertGone(witness)
    assertGone(run.witness)
  })

  test('skips a suspect that was registered after its detection', posixOnly(NO_PROC, options), async (t) => {
    const here = supervise(freshRegistry())
    const projectDir = project(t)
    const { pid, witness } = await stray(t, { cwd: projectDir })
    here.once('orphan:detected', () => here.registerProcess({ pid }))
    const { suspected } = await here.endOrphans({ projectDir, force: true, graceMs: 1000 })
    assert.equal(suspected[0].outcome, 'skipped')
    assert.match(suspected[0].error, /no suspect any more/)
    assertAlive(witness)
  })

  test('reports a suspect that has ended by itself', posixOnly(NO_PROC, options), async (t) => {
    const here = supervise(freshRegistry())
    const projectDir = project(t)
    const { pid, witness } = await stray(t, { cwd: projectDir })
    here.once('orphan:detected', () => {
      process.kill(pid, 'SIGKILL')
      // endOrphans inspects the process again only after this listener returns.
      while (!['Z', 'X', undefined].includes(stateOf(pid)));
    })
    const [{ outcome, error }] = (await here.endOrphans({ projectDir, force: true })).suspected
    assert.deepEqual([outcome, error], ['skipped', 'it had already ended by itself'])
    assertGone(witness)
  })
})
