// watchOrphans detects the death of an owner at once. With `autoKill` it ends confirmed orphans. It
// never ends suspects.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { assertAlive, assertGone, freshRegistry, supervise, until } from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { kept, owned } from '../support/orphans.mjs'
import { assert, describe, program, test } from '../support/prelude.mjs'
import { project, stray } from '../support/strays.mjs'
import { isWindows, NO_KEEPER, NO_LINKS, NO_PROC, posixOnly } from '../support/system.mjs'

const options = { timeout: 60_000 }
const together = { timeout: 120_000, concurrency: 3 }
const names = ['detected', 'killed', 'skipped', 'failed']

/** So long that no test waits for it: what a watch sees, it sees without the interval. */
const INTERVAL_MS = 3_600_000
const stays = { command: (witness) => [program('stays'), [witness]], ready: 1 }

/**
 * Starts a watch that ends with the test, and collects the orphan events from now on. Without
 * `patterns` it suspects no process.
 */
function watch(t, supervisor, more) {
  const events = []
  for (const name of names)
    supervisor.on(`orphan:${name}`, ({ pid, status }) => events.push([name, pid, status]))
  const it = supervisor.watchOrphans({ intervalMs: INTERVAL_MS, patterns: [], ...more })
  // A watch does not keep this process alive, so a timer does.
  const awake = setInterval(() => {}, INTERVAL_MS)
  t.after(() => [it.stop(), clearInterval(awake)])
  return { watch: it, events }
}

const logged = (path) => {
  const file = join(dirname(path), 'orphan-events.log')
  return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []
}

describe('the death of an owner', together, () => {
  test('is detected at once, also if its keepers are killed too', options, async (t) => {
    // On Windows the kernel has the role of the keeper and cannot be killed.
    const run = await owned(t, { tree: stays, onOwnerExit: isWindows ? 'keep' : 'kill' })
    const { watch: it, events } = watch(t, run.next)
    await it.check()
    assert.deepEqual(events, [], 'its owner is alive')
    const detected = once(run.next, 'orphan:detected')
    await run.bot.killWithHelpers()
    const from = performance.now()
    const [event] = await detected
    t.diagnostic(`detected ${Math.round(performance.now() - from)} ms after the death was known`)
    assert.deepEqual([event.pid, event.status, event.runId], [run.pid, 'confirmed', run.runId])
    assertAlive(run.witness)
    // The watch reports it once, also if a later check finds it again.
    const { confirmed } = await it.check()
    assert.deepEqual([confirmed[0].pid, confirmed[0].outcome], [run.pid, 'planned'])
    assert.deepEqual(events, [['detected', run.pid, 'confirmed']])
    assert.equal(logged(run.path).length, 1)
    assert.match(logged(run.path)[0], new RegExp(` DETECTED pid=${run.pid} .* status=confirmed `))
    const { lastCheck, ...stats } = it.stats
    assert.deepEqual(stats, { watching: true, orphansDetected: 1, orphansKilled: 0 })
    assert.ok(lastCheck <= Date.now() && lastCheck > Date.now() - options.timeout)
    await run.next.reapOrphans()
    assertGone(run.witness)
  })

  test('is detected also if the owner was started after the watch', options, async (t) => {
    const path = freshRegistry()
    const next = supervise(path)
    const { watch: it } = watch(t, next, { autoKill: true })
    await it.check()
    const run = await owned(t, { tree: stays, onOwnerExit: 'keep', path })
    const killed = once(next, 'orphan:killed')
    await run.bot.kill()
    const [{ pid }] = await killed
    assert.equal(pid, run.pid)
    assertGone(run.witness)
  })

  test('makes a watch with autoKill end the run', options, async (t) => {
    const run = await owned(t, { tree: stays, onOwnerExit: 'keep' })
    const { watch: it, events } = watch(t, run.next, { autoKill: true })
    await it.check()
    run.next.once('orphan:killed', () => assertGone(run.witness))
    const killed = once(run.next, 'orphan:killed')
    await run.bot.killWithHelpers()
    await killed
    assert.deepEqual(events, [
      ['detected', run.pid, 'confirmed'],
      ['killed', run.pid, 'confirmed'],
    ])
    assert.equal(logged(run.path).length, 2)
    // The counters change when the check is over.
    await it.check()
    const { lastCheck: _, ...stats } = it.stats
    assert.deepEqual(stats, { watching: true, orphansDetected: 1, orphansKilled: 1 })
    assert.deepEqual(run.next.list(), [])
  })

  test('creates no orphan if the keeper is ending the run', posixOnly(NO_KEEPER, options), async (t) => {
    // The keeper waits for the grace period, and the watch checks meanwhile.
    const run = await owned(t, { tree: treeNamed('ignores-sigterm'), graceMs: 30_000 })
    const { watch: it, events } = watch(t, run.next, { autoKill: true })
    await it.check()
    const { lastCheck } = it.stats
    await run.bot.kill()
    await until(() => it.stats.lastCheck > lastCheck, 'the death has triggered a check')
    const { confirmed } = await it.check()
    assert.deepEqual([confirmed.length, confirmed[0]?.facts.keeper], [1, 'alive'])
    assertAlive(run.witness)
    assert.deepEqual(events, [])
    await run.next.cancel(run.runId, { signal: 'SIGKILL' })
    assertGone(run.witness)
    await it.check()
    assert.deepEqual([events, it.stats.orphansDetected, it.stats.orphansKilled], [[], 0, 0])
  })
})

describe('a watch', together, () => {
  test('never ends a suspect, and reports it once', posixOnly(NO_PROC, options), async (t) => {
    const path = freshRegistry()
    const here = supervise(path)
    const projectDir = project(t)
    const suspect = await stray(t, { cwd: projectDir })
    const inOtherDirectory = await stray(t, { cwd: project(t) })
    const { watch: it, events } = watch(t, here, { autoKill: true, patterns: undefined, projectDir })
    for (let i = 0; i < 3; i++) {
      const { suspected } = await it.check()
      assert.deepEqual(
        suspected.map(({ pid }) => pid),
        [suspect.pid],
      )
    }
    assertAlive(suspect.witness)
    assertAlive(inOtherDirectory.witness)
    assert.deepEqual(events, [['detected', suspect.pid, 'suspected']])
    assert.equal(logged(path).length, 1)
    const { lastCheck: _, ...stats } = it.stats
    assert.deepEqual(stats, { watching: true, orphansDetected: 1, orphansKilled: 0 })
  })

  test('checks again after every interval', posixOnly(NO_PROC, options), async (t) => {
    const here = supervise(freshRegistry())
    const projectDir = project(t)
    const { watch: it } = watch(t, here, {
      intervalMs: undefined,
      interval: 100,
      patterns: ['claude'],
      projectDir,
    })
    await it.check()
    const detected = once(here, 'orphan:detected')
    // No bot dies and no registry changes, so only the interval triggers a check.
    const { pid } = await stray(t, { cwd: projectDir })
    const [event] = await detected
    assert.equal(event.pid, pid)
  })

  test('ends no process that is younger than maxAge', options, async (t) => {
    const run = await kept(t, { tree: stays })
    const { watch: it, events } = watch(t, run.next, { autoKill: true, maxAgeMs: 3_600_000 })
    await it.check()
    assertAlive(run.witness)
    assert.deepEqual(events, [['detected', run.pid, 'confirmed']])
    it.stop()
    const grown = watch(t, run.next, { autoKill: true, maxAge: 1 })
    await grown.watch.check()
    assertGone(run.witness)
    assert.equal(grown.watch.stats.orphansKilled, 1)
  })

  test('that was stopped detects and ends no process', options, async (t) => {
    const run = await owned(t, { tree: stays, onOwnerExit: 'keep' })
    const stopped = watch(t, supervise(run.path), { autoKill: true, intervalMs: 100 })
    await stopped.watch.check()
    stopped.watch.stop()
    assert.equal(stopped.watch.stats.watching, false)
    // A check that is under way finishes.
    await stopped.watch.check()
    const { lastCheck } = stopped.watch.stats
    // Another watch shows when the stopped one would have detected the orphan.
    const other = watch(t, run.next)
    await other.watch.check()
    const detected = once(run.next, 'orphan:detected')
    await run.bot.kill()
    await detected
    assert.deepEqual([stopped.events, stopped.watch.stats.lastCheck], [[], lastCheck])
    // check() still works, and only reports.
    const { confirmed } = await stopped.watch.check()
    assert.deepEqual([confirmed.length, stopped.events], [1, []])
    assertAlive(run.witness)
    stopped.watch[Symbol.dispose]()
    await run.next.reapOrphans()
  })

  test(
    'gives all callers of check() that come during a check the result of the next one',
    options,
    async (t) => {
      const { watch: it } = watch(t, supervise(freshRegistry()))
      await it.check()
      const first = it.check()
      assert.equal(it.check(), first, 'it has not started')
      await first
      assert.notEqual(it.check(), first)
    },
  )

  test('does not keep its bot alive', options, async () => {
    const code = `
      import { createSupervisor } from 'spawn-owned'
      const registryPath = ${JSON.stringify(freshRegistry())}
      const watch = createSupervisor({ registryPath }).watchOrphans({ autoKill: true })
      await watch.check()
      console.log(JSON.stringify(watch.stats.watching))`
    const root = fileURLToPath(new URL('../..', import.meta.url))
    const run = promisify(execFile)
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', code], {
      cwd: root,
      timeout: 30_000,
    })
    assert.equal(stdout.trim(), 'true')
  })

  test('reports an error of a check as a warning, and goes on', posixOnly(NO_LINKS, options), async (t) => {
    const path = freshRegistry()
    mkdirSync(dirname(path), { recursive: true })
    symlinkSync('/dev/null', path)
    const here = supervise(path)
    const warning = once(here, 'event')
    const { watch: it } = watch(t, here)
    const [event] = await warning
    assert.deepEqual([event.type, event.kind], ['registry', 'watch'])
    await assert.rejects(it.check(), { code: 'ERR_OWNED_REGISTRY_SYMLINK' })
    assert.equal(it.stats.watching, true)
  })

  test('refuses invalid options', () => {
    const here = supervise(freshRegistry())
    for (const [wrong, code] of [
      [{ intervalMs: 0 }, 'ERR_OUT_OF_RANGE'],
      [{ interval: 2 ** 31 }, 'ERR_OUT_OF_RANGE'],
      [{ maxAgeMs: -1 }, 'ERR_OUT_OF_RANGE'],
      [{ autoKill: 'yes' }, 'ERR_INVALID_ARG_TYPE'],
      [1, 'ERR_INVALID_ARG_TYPE'],
    ])
      assert.throws(() => here.watchOrphans(wrong), { code })
  })
})

test('two bots that watch one registry end an orphan once', options, async (t) => {
  const run = await owned(t, { tree: stays, onOwnerExit: 'keep' })
  const watches = [run.next, supervise(run.path)].map((it) => watch(t, it, { autoKill: true }))
  await Promise.all(watches.map((it) => it.watch.check()))
  await run.bot.killWithHelpers()
  await run.witness.gone(20_000)
  await Promise.all(watches.map((it) => it.watch.check()))
  const kills = watches.flatMap(({ events }) => events).filter(([name]) => name === 'killed')
  assert.deepEqual(kills, [['killed', run.pid, 'confirmed']])
  assert.equal(
    watches.reduce((sum, it) => sum + it.watch.stats.orphansKilled, 0),
    1,
  )
})
