// The content of the registry file after a bot has ended, and what its keepers add to it.
import { execFile } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { startBot } from '../support/obedient-bot.mjs'
import { assert, describe, library, openWitness, program, test } from '../support/prelude.mjs'
import { openRegistry } from '../support/registry.mjs'
import { linuxOnly, NO_KEEPER, NO_PRELOADING, posixOnly } from '../support/system.mjs'

describe('when a bot ends', () => {
  const cat = ['cat', [], { stdio: ['pipe', 'ignore', 'ignore'] }]
  const botOn = (t, { path }) => startBot(t, { options: { registryPath: path } })

  test('by process.exit() right after its run ended, the file does not contain the run', async (t) => {
    const registry = openRegistry(t)
    const bot = botOn(t, registry)
    const { runId } = await bot.ask('spawn', ...cat)
    await registry.has(runId)
    await bot.ask('endInput', runId)
    await bot.askLast('wait', runId)
    assert.deepEqual(await bot.ended, [0, null])
    assert.deepEqual(registry.read(), { version: 1, entries: [] })
  })

  test('by process.exit() right after a spawn, the file contains the run that lives on', async (t) => {
    const witness = openWitness(t)
    const registry = openRegistry(t)
    const bot = botOn(t, registry)
    const options = { onOwnerExit: 'keep' }
    const { runId } = await bot.askLast('spawn', program('stays'), [witness.path], options)
    assert.deepEqual(await bot.ended, [0, null])
    assert.equal(registry.entry(runId)?.botPid, bot.pid)
    await witness.ready(1)
    const { reapOrphans, list } = registry.supervise()
    assert.equal(list().length, 1)
    const { killed } = await reapOrphans()
    assert.deepEqual([killed.length, witness.isGone()], [1, true])
    await registry.lacks(runId)
  })

  /**
   * Runs a bot that spawns and exits in the same tick. Its keeper can record how the run ended only
   * if it knows the registry and the run.
   */
  async function exitAtOnce(t, more) {
    const script = `require('spawn-owned').spawnOwned('sleep', ['600'], { runId: 'run', stdio: 'ignore' }); process.exit(0)`
    const registry = openRegistry(t)
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: registry.path, ...more }
    await promisify(execFile)(process.execPath, ['-e', script], { env, cwd: import.meta.dirname })
    const { exit } = await registry.has('run', 'exited')
    assert.equal(exit.reason, 'owner-exit')
  }

  test(
    'by process.exit() in the tick of a spawn, its keeper records the end of the run',
    posixOnly(NO_KEEPER),
    async (t) => {
      for (let round = 0; round < 10; round++) await exitAtOnce(t)
    },
  )

  test(
    'in the tick of a spawn before its native thread ran, its keeper records the end of the run',
    linuxOnly(NO_PRELOADING),
    (t) => exitAtOnce(t, { LD_PRELOAD: library('holds-the-native-thread') }),
  )

  test(
    'by SIGKILL, its keeper ends the run and records how, and the next bot reports it',
    posixOnly(NO_KEEPER),
    async (t) => {
      const witness = openWitness(t)
      const registry = openRegistry(t)
      const bot = botOn(t, registry)
      const { pid, runId } = await bot.ask('spawn', program('stays'), [witness.path])
      await witness.ready(1)
      await registry.has(runId, 'running')
      const killedAt = Date.now()
      await bot.kill('SIGKILL')
      await witness.gone(20_000)
      const { exit, ...entry } = await registry.has(runId, 'exited')
      assert.deepEqual([entry.pid, entry.botPid], [pid, bot.pid])
      const { atMs, ...how } = exit
      const expected = {
        reason: 'owner-exit',
        ending: 'owner-exit',
        exitCode: null,
        signal: 15,
        survivors: 0,
      }
      assert.deepEqual(how, expected)
      assert.ok(atMs >= killedAt && atMs <= Date.now(), `${killedAt} <= ${atMs}`)

      const { list, reapOrphans } = registry.supervise()
      assert.deepEqual(list(), [], 'the ended run is not listed')
      const report = await reapOrphans()
      assert.deepEqual(summary(report), { killed: [], alreadyDead: [pid], skipped: [], failed: [] })
      assert.equal(report.decisions[0].facts.state, 'exited')
      await registry.lacks(runId)
      assert.deepEqual(summary(await reapOrphans()), { killed: [], alreadyDead: [], skipped: [], failed: [] })
    },
  )

  test('and its kept run exits later, its keeper records the exit code', posixOnly(NO_KEEPER), async (t) => {
    const witness = openWitness(t)
    const registry = openRegistry(t)
    const bot = botOn(t, registry)
    const line = 'exec 3>"$0"; printf r >&3; while test -e "$1"; do sleep 0.02; done; exit 7'
    const flag = join(registry.dir, 'flag')
    writeFileSync(flag, '')
    const options = { onOwnerExit: 'keep' }
    const { pid, runId } = await bot.ask('spawn', 'sh', ['-c', line, witness.path, flag], options)
    await witness.ready(1)
    // The command can be ready before its bot has recorded that it runs.
    await registry.has(runId, 'running')
    await bot.kill('SIGKILL')
    assert.deepEqual(
      registry
        .supervise()
        .list()
        .map((entry) => [entry.pid, entry.state]),
      [[pid, 'running']],
    )
    rmSync(flag)
    await witness.gone(20_000)
    const { exit } = await registry.has(runId, 'exited')
    const { atMs: _, ...how } = exit
    assert.deepEqual(how, { reason: 'exit', ending: 'root-exit', exitCode: 7, signal: null, survivors: 0 })
    const report = await registry.supervise().reapOrphans()
    assert.deepEqual(summary(report), { killed: [], alreadyDead: [pid], skipped: [], failed: [] })
    await registry.lacks(runId)
  })

  test('by SIGKILL, its registered process stays in the file until the next bot ends it', async (t) => {
    const witness = openWitness(t)
    const registry = openRegistry(t)
    const bot = botOn(t, registry)
    const pid = await bot.ask('start', program('stays'), [witness.path], { detached: true })
    await witness.ready(1)
    const { runId } = await bot.ask('registerProcess', { pid })
    await bot.kill('SIGKILL')
    const { list, reapOrphans } = registry.supervise()
    assert.deepEqual(
      list().map((entry) => entry.runId),
      [runId],
    )
    assert.equal(witness.isGone(), false)
    const report = await reapOrphans()
    assert.equal(witness.isGone(), true)
    assert.deepEqual(summary(report), { killed: [pid], alreadyDead: [], skipped: [], failed: [] })
    await registry.lacks(runId)
  })
})

function summary({ killed, alreadyDead, skipped, failed }) {
  return { killed, alreadyDead, skipped, failed }
}
