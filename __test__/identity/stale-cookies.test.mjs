// Only the key in a cookie proves that a process is a member of a run. The run id does not: callers
// choose run ids and reuse them.
import { spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import {
  assertAlive,
  assertGone,
  bystander,
  freshRegistry,
  gone,
  isHelper,
  keeperOf,
  startBot,
  statOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { assertReport, crashed, crashedAs, owned } from '../support/orphans.mjs'
import { assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import { linuxOnly, NO_SETSID } from '../support/system.mjs'

const tree = treeNamed('double-fork-daemon')

/** The cookie of a process, as the kernel shows it. */
const cookieIn = (pid) =>
  readFileSync(`/proc/${pid}/environ`, 'utf8')
    .split('\0')
    .find((pair) => pair.startsWith('SPAWN_OWNED_RUN='))
    ?.slice('SPAWN_OWNED_RUN='.length)

/** The start time of a process in ticks since boot, from its PID or from the text of its `stat`. */
function startOf(process) {
  const stat = typeof process === 'number' ? readFileSync(`/proc/${process}/stat`, 'utf8') : String(process)
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19])
}

/**
 * Kills the helpers of a run. The zygote before the keeper, because the zygote adopts what a killed
 * keeper leaves.
 */
function killHelpers(record) {
  const keeper = keeperOf(record)
  for (const pid of [statOf(keeper).parent, keeper]) {
    assert.ok(isHelper(pid), `${pid} is not a helper`)
    process.kill(pid, 'SIGKILL')
  }
}

describe('a cookie', linuxOnly(NO_SETSID, { timeout: 600_000, concurrency: 2 }), () => {
  test('consists of the run id and the key of the record', options, async (t) => {
    const { pid, record, runId, next } = await owned(t, { runId: 'the-run' })
    assert.match(record.cookieKey, /^[0-9a-f]{32}$/)
    assert.equal(cookieIn(pid), `the-run:~${record.cookieKey}`)
    await next.cancel(runId)
  })

  test('from an earlier run with the same id does not make a daemon a member', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const runId = 'nightly'
    const earlier = await owned(t, { bot, path, runId })
    // A daemon of the earlier run has such a cookie if it was released too late or if pm2 restarted
    // it.
    const daemon = await bystander(t, { env: { ...process.env, SPAWN_OWNED_RUN: cookieIn(earlier.pid) } })
    await earlier.next.cancel(runId, { graceMs: 0 })
    const later = await owned(t, { bot, path, runId, tree })
    // A child of the daemon, younger than the later run.
    const child = await bystander(t, { env: { ...process.env, SPAWN_OWNED_RUN: cookieIn(daemon.pid) } })
    await bot.killWithHelpers()
    assertReport(await later.next.reapOrphans(), { killed: [later.pid] })
    assertGone(later.witness)
    assertAlive(daemon.witness)
    assertAlive(child.witness)
  })

  test(
    'with the right key does not make a process a member that is older than the root',
    options,
    async (t) => {
      const cookieKey = randomBytes(16).toString('hex')
      const env = { ...process.env, SPAWN_OWNED_RUN: `x:~${cookieKey}` }
      const older = await bystander(t, { env })
      // Start times have a resolution of 10 ms. A process that is as old as the root counts as a
      // member.
      const tick = startOf(older.pid)
      await until(
        () => startOf(spawnSync('sh', ['-c', 'cat /proc/$$/stat']).stdout) > tick,
        'the next tick of the clock',
      )
      const { next, pid, witness } = await crashedAs(t, () => ({ cookieKey }), { tree })
      const younger = await bystander(t, { env })
      assertReport(await next.reapOrphans(), { killed: [pid] })
      assertAlive(older.witness)
      assertGone(younger.witness)
      // The record now has another key than the run's own daemon, so the daemon is not a member.
      assertAlive(witness)
    },
  )

  test(
    'in the environment of a bot does not lead the bot to other runs with the same id',
    options,
    async (t) => {
      const outerPath = freshRegistry()
      const outer = supervise(outerPath)
      const runId = 'agent'
      // The outer run starts the sibling beside the inner bot.
      const sibling = openWitness(t)
      const inner = openWitness(t)
      const path = freshRegistry()
      const code = `import { createSupervisor } from 'spawn-owned'
      const supervisor = createSupervisor({ registryPath: ${JSON.stringify(path)} })
      const [tool, witness] = process.argv.slice(1)
      const run = supervisor.spawnOwned('setsid', ['-w', tool, witness], { runId: 'agent', stdio: 'ignore', graceMs: 200 })
      process.stdin.resume().on('end', () => process.exit())
      run.wait().then(({ reason }) => console.log(reason))`
      const line = 'setsid "$1" "$2" </dev/null & shift 2; exec "$@"'
      const args = [
        '-c',
        line,
        'sh',
        program('stays'),
        sibling.path,
        process.execPath,
        '--input-type=module',
        '-e',
        code,
      ]
      const run = outer.spawnOwned('sh', [...args, program('stays'), inner.path], {
        runId,
        stdio: ['pipe', 'pipe', 'inherit'],
      })
      t.after(() => run.cancel({ graceMs: 0 }))
      let innerOutput = ''
      run.stdout.setEncoding('utf8').on('data', (text) => {
        innerOutput += text
      })
      await Promise.all([sibling.ready(1), inner.ready(1)])
      const [record] = supervise(path).list({ runId })
      killHelpers(record)
      await until(() => innerOutput.endsWith('\n'), 'the inner bot reports the end of its run')
      assert.equal(innerOutput, 'lost\n')
      assertGone(inner)
      assertAlive(sibling)
      assert.equal(run.state, 'running')
    },
  )

  test('proves nothing for an entry of an older version, which has no key', options, async (t) => {
    const { next, pid, witness, record } = await crashedAs(t, () => ({ cookieKey: undefined }), { tree })
    const withRunId = await bystander(t, { env: { ...process.env, SPAWN_OWNED_RUN: record.runId } })
    // The identity proves the root process. Nothing proves the daemon.
    process.kill(pid, 'SIGKILL')
    await gone(pid)
    const report = await next.reapOrphans()
    assertReport(report, { alreadyDead: [pid] })
    const { reason, keyless } = report.decisions[0].facts
    assert.deepEqual([reason, keyless], ['gone-without-key', 'true'])
    assertAlive(witness)
    assertAlive(withRunId.witness)
  })

  test('that is malformed or has a wrong key makes no process a member', { timeout: 300_000 }, async (t) => {
    const { next, pid, record, runId, witness } = await crashed(t, { tree, runId: 'the-run' })
    const { cookieKey: key } = record
    const forgeries = [
      runId,
      `~${runId}`,
      `${runId}:${key}`,
      `${runId}:~`,
      `${runId}:~${key.slice(1)}`,
      `${runId}:~${key}0`,
      `${runId}:~~${key}`,
      `${runId}:x~${key}`,
      `${runId}:~${key.slice(0, 31)}G`,
      `${runId}~${key}`,
      ...Array.from({ length: 20 }, () => `${runId}:~${randomBytes(16).toString('hex')}`),
    ]
    const others = openWitness(t)
    const children = forgeries.map((cookie) => {
      const env = { ...process.env, SPAWN_OWNED_RUN: cookie }
      return spawn(program('stays'), [others.path], { env, detached: true, stdio: 'ignore' })
    })
    t.after(() => {
      for (const child of children) child.kill('SIGKILL')
    })
    await others.ready(children.length)
    assertReport(await next.reapOrphans(), { killed: [pid] })
    assertGone(witness)
    const ended = children.filter(({ exitCode, signalCode }) => exitCode !== null || signalCode !== null)
    assert.deepEqual(ended, [])
    // Neither dead nor stopped.
    for (const child of children) assert.match(statOf(child.pid).state, /[SRD]/)
  })
})
