// Counters: their names, their values, and their Prometheus text.
import { spawn } from 'node:child_process'
import parsePrometheusTextFormat from 'parse-prometheus-text-format'
import * as owned from 'spawn-owned'
import { assertGone, freshRegistry, keeperOf, supervise, until } from '../support/bots.mjs'
import { standing } from '../support/deadlines.mjs'
import { crashed, kept } from '../support/orphans.mjs'
import { assert, openWitness, options, program, test } from '../support/prelude.mjs'
import { isWindows, NO_KEEPER, posixOnly } from '../support/system.mjs'

const REASONS = [
  ...['exit', 'signal', 'manual-cancel', 'overall-timeout', 'no-output-timeout', 'spawn-error'],
  ...['ownership-escape', 'owner-exit', 'shutdown', 'lost'],
]

/** Returns the expected metrics(), given the values that are not 0. */
function figures({ exits = {}, timeouts = {}, kills = {}, ...more } = {}) {
  const zeros = (names) => Object.fromEntries(names.map((name) => [name, 0]))
  return {
    run_spawn_total: 0,
    run_exit_total: { ...zeros(REASONS), ...exits },
    run_timeout_total: { overall: 0, 'no-output': 0, ...timeouts },
    run_cleanup_kill_total: { signal: 0, kill: 0, ...kills },
    run_reconcile_orphans_total: 0,
    run_lease_steal_total: 0,
    run_ownership_escape_total: 0,
    run_live: 0,
    ...more,
  }
}

/** Parses the Prometheus text into the shape of metrics(). */
function parsed(text) {
  const families = parsePrometheusTextFormat(text)
  const figureOf = ({ metrics }) => {
    const [{ labels }] = metrics
    if (labels === undefined) return Number(metrics[0].value)
    return Object.fromEntries(metrics.map((one) => [Object.values(one.labels)[0], Number(one.value)]))
  }
  return Object.fromEntries(families.map((family) => [family.name, figureOf(family)]))
}

const fresh = () => supervise(freshRegistry())

test('all counters of a new supervisor are 0', options, () => {
  const here = fresh()
  assert.deepEqual(here.metrics(), figures())
  assert.deepEqual(parsed(here.metricsText()), figures())
})

test('metricsText() has every name with type, label and help text', options, () => {
  const families = parsePrometheusTextFormat(fresh().metricsText())
  const seen = families.map(({ name, type, help, metrics }) => {
    assert.match(help, /^[A-Z].*\.$/)
    return [name, type, Object.keys(metrics[0].labels ?? {}).join()]
  })
  assert.deepEqual(seen, [
    ['run_spawn_total', 'COUNTER', ''],
    ['run_exit_total', 'COUNTER', 'reason'],
    ['run_timeout_total', 'COUNTER', 'type'],
    ['run_cleanup_kill_total', 'COUNTER', 'mode'],
    ['run_reconcile_orphans_total', 'COUNTER', ''],
    ['run_lease_steal_total', 'COUNTER', ''],
    ['run_ownership_escape_total', 'COUNTER', ''],
    ['run_live', 'GAUGE', ''],
  ])
})

test('the counters match the runs', posixOnly(NO_KEEPER, options), async (t) => {
  const here = fresh()
  const sh = (line, more) => here.spawnOwned('sh', ['-c', line], more)
  const ignoresSigterm = { graceMs: 100 }
  const exits = [
    sh('exit 0').wait(),
    sh('exit 1').wait(),
    sh('(sleep 60) & exit 2').wait(),
    sh('kill -9 $$').wait(),
    sh('read _').cancel(),
    sh('read _').cancel({ reason: 'shutdown' }),
    sh('read _', { timeoutMs: 500 }).wait(),
    sh('read _', { timeout: 500 }).wait(),
    sh('trap "" TERM; while :; do sleep 1; done', { noOutputTimeoutMs: 3000, ...ignoresSigterm }).wait(),
  ]
  for (const command of ['/nonexistent/command', '/']) {
    exits.push(
      here
        .spawnOwned(command)
        .on('error', () => {})
        .wait(),
    )
  }
  const escaping = openWitness(t)
  const daemon = here.spawnOwned(program('double-fork-daemon'), [escaping.path])
  await escaping.ready(2)
  daemon.stdin.end()
  exits.push(daemon.wait())
  const lost = sh('read _')
  await until(() => here.list({ runId: lost.runId })[0]?.state === 'running', 'the registry entry is written')
  process.kill(keeperOf(here.list({ runId: lost.runId })[0]), 'SIGKILL')
  exits.push(lost.wait())
  const seen = (await Promise.all(exits)).map(({ reason }) => reason)
  assertGone(escaping)

  const expected = figures({
    run_spawn_total: 11,
    exits: {
      ...{
        exit: 3,
        signal: 1,
        'manual-cancel': 1,
        shutdown: 1,
        'overall-timeout': 2,
        'no-output-timeout': 1,
      },
      ...{ 'spawn-error': 2, 'ownership-escape': 1, lost: 1 },
    },
    timeouts: { overall: 2, 'no-output': 1 },
    // Leftovers of a root count too. A lost run does not count, because its keeper cannot report.
    kills: { signal: 6, kill: 2 },
    run_ownership_escape_total: 1,
  })
  const tally = Object.fromEntries(
    REASONS.map((reason) => [reason, seen.filter((it) => it === reason).length]),
  )
  assert.deepEqual(tally, expected.run_exit_total)
  assert.deepEqual(here.metrics(), expected)
  assert.deepEqual(parsed(here.metricsText()), expected)
})

test('run_live counts live runs and registered processes', options, async (t) => {
  const here = fresh()
  const runs = [1, 2].map(() => here.spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] }))
  assert.equal(here.metrics().run_live, 2)
  const child = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
  t.after(() => child.stdin.destroy())
  const { runId } = here.registerProcess({ pid: child.pid })
  assert.deepEqual([here.metrics().run_live, parsed(here.metricsText()).run_live], [3, 3])
  here.unregisterProcess(runId)
  await runs[0].cancel()
  assert.equal(here.metrics().run_live, 1)
  await runs[1].cancel()
  assert.equal(here.metrics().run_live, 0)
})

test('each supervisor counts its own runs, also on a shared registry', options, async () => {
  const path = freshRegistry()
  const [one, other] = [supervise(path), supervise(path)]
  await one.spawnOwned('true').wait()
  assert.deepEqual(one.metrics(), figures({ run_spawn_total: 1, exits: { exit: 1 } }))
  assert.deepEqual(other.metrics(), figures())
})

test('the owner counts a cancel from another supervisor', options, async (t) => {
  const { child, here, witness } = await standing(t, [program('half-setsid'), []], { ready: 33 })
  const other = supervise(here.registryPath)
  await other.cancel(child.runId)
  assertGone(witness)
  await child.wait()
  const expected = {
    run_spawn_total: 1,
    exits: { 'manual-cancel': 1 },
    kills: isWindows ? { kill: 1 } : { signal: 1 },
  }
  assert.deepEqual([here.metrics(), other.metrics()], [figures(expected), figures()])
})

test('run_reconcile_orphans_total counts ended and adopted orphans', options, async (t) => {
  const orphan = await crashed(t)
  await orphan.next.reapOrphans()
  assert.equal(orphan.next.metrics().run_reconcile_orphans_total, 1)
  await orphan.next.reapOrphans()
  assert.equal(orphan.next.metrics().run_reconcile_orphans_total, 1)

  for (const adopt of [(next) => next.reapOrphans({ policy: 'adopt' }), (next, runId) => next.adopt(runId)]) {
    const { next, runId, witness } = await kept(t)
    await adopt(next, runId)
    assert.deepEqual([next.metrics().run_reconcile_orphans_total, next.metrics().run_live], [1, 1])
    await (await next.adopt(runId)).cancel()
    assertGone(witness)
    const {
      run_reconcile_orphans_total: orphans,
      run_exit_total: exits,
      run_spawn_total: spawns,
    } = next.metrics()
    assert.deepEqual([orphans, exits['manual-cancel'], spawns], [1, 1, 0])
  }
})

test('the counters change while the event loop is blocked', options, () => {
  const here = fresh()
  here.spawnOwned('true', { stdio: 'ignore' })
  const giveUpAt = performance.now() + 60_000
  while (here.metrics().run_exit_total.exit === 0 && performance.now() < giveUpAt);
  assert.deepEqual(here.metrics(), figures({ run_spawn_total: 1, exits: { exit: 1 } }))
})

test('a refused start does not count', options, () => {
  const here = fresh()
  assert.throws(() => here.spawnOwned('true', { stdio: 'ignore', noOutputTimeoutMs: 5 }))
  assert.throws(() => here.spawnOwned('true', { runId: 'not valid' }))
  assert.deepEqual(here.metrics(), figures())
})

test('the exported functions use the default supervisor', options, async () => {
  const before = owned.metrics().run_spawn_total
  await owned.spawnOwned('true').wait()
  assert.equal(owned.metrics().run_spawn_total, before + 1)
  assert.equal(parsed(owned.metricsText()).run_spawn_total, before + 1)
})
