// A bot that dies before, during or after any write to the registry leaves a registry that can be
// read and that leads to all it left. The instants are failpoints (src/registry/failpoint.rs),
// tried in sequence.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { installWithFailpoints, withoutFailpoints } from '../support/failpoints.mjs'
import { startBot } from '../support/obedient-bot.mjs'
import { after, assert, before, describe, openWitness, program, script, test } from '../support/prelude.mjs'
import { openRegistry, until } from '../support/registry.mjs'
import { isWindows } from '../support/system.mjs'

const AT_ONCE = 2
const GONE_MS = 30_000
const LEGACIES = 8
/** The exit code of a failpoint on Windows, which has no signals. */
const CRASHED_ON_WINDOWS = 137

describe('a bot that crashes', { timeout: 900_000, skip: withoutFailpoints }, () => {
  let installed

  before(async () => {
    installed = mkdtempSync(join(tmpdir(), 'crash-'))
    installWithFailpoints(installed)
    copyFileSync(script('bot-that-crashes.mjs'), join(installed, 'bot.mjs'))
  })
  after(() => rmSync(installed, { recursive: true, maxRetries: 10 }))

  /**
   * Runs the bot until it dies at its `n`th failpoint or exits normally. `said` tests whether it
   * printed a line.
   */
  async function crash(registry, n, act, witnesses) {
    const paths = Object.fromEntries(Object.entries(witnesses).map(([name, { path }]) => [name, path]))
    const task = JSON.stringify({ act, stays: program('stays'), witnesses: paths })
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: registry.path, SPAWN_OWNED_CRASH_AT: String(n) }
    const bot = spawn(process.execPath, [join(installed, 'bot.mjs'), task], {
      cwd: registry.dir,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let [said, stderrText] = ['', '']
    bot.stdout.on('data', (text) => (said += text))
    bot.stderr.on('data', (text) => (stderrText += text))
    const [code, signal] = await once(bot, 'close')
    const crashed = isWindows ? code === CRASHED_ON_WINDOWS : signal === 'SIGKILL'
    if (!crashed) assert.deepEqual([code, signal], [0, null], `${said}${stderrText}`)
    const words = new Set(said.split('\n'))
    assert.equal(words.has('done') || crashed, true)
    return { crashed, said: (word) => words.has(word) }
  }

  /**
   * Tries one instant after the other until the bot has exited normally twice in a row: then no
   * write is left at which it could die.
   */
  async function atEveryWrite(attempt) {
    let [next, crashes, endedWell] = [1, 0, 0]
    const failures = []
    async function work() {
      while (endedWell < 2 && failures.length === 0) {
        const n = next++
        try {
          if (await attempt(n)) [crashes, endedWell] = [crashes + 1, 0]
          else endedWell++
        } catch (error) {
          failures.push(new Error(`crashed at ${n}: ${error.message}`, { cause: error }))
        }
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, work))
    if (failures.length > 0) throw failures[0]
    return crashes
  }

  /**
   * Recovers as the next bot: this process, which has not read this registry yet. Afterwards no run
   * and no entry is left.
   */
  async function recover(registry) {
    registry.read()
    const next = registry.supervise()
    const warnings = []
    next.on('event', ({ type, kind }) => type === 'registry' && warnings.push(kind))
    const listed = next.list().map(({ runId }) => runId)
    const report = await next.reapOrphans()
    assert.deepEqual(next.list(), [])
    await until(() => registry.entries().length === 0, 'no entry is left')
    assert.deepEqual([warnings.filter((kind) => kind !== 'torn'), registry.setAside()], [[], []])
    return { listed, report, looked: report.decisions.map(({ runId }) => runId) }
  }

  test('while it owns runs loses none of them and leaves none', async (t) => {
    const names = ['registered', 'first', 'second']
    const crashes = await atEveryWrite(async (n) => {
      const registry = openRegistry(t)
      const witnesses = Object.fromEntries(names.map((name) => [name, openWitness(t)]))
      const { crashed, said } = await crash(registry, n, 'own', witnesses)
      for (const witness of Object.values(witnesses)) witness.release()
      // Each run has a keeper, which ends it even if no bot reaps.
      for (const name of ['first', 'second']) await witnesses[name].gone(GONE_MS)

      const { listed, looked, report } = await recover(registry)
      for (const name of names) {
        // Between the announcement of an action and its confirmation, both states are right.
        if (said(`ended ${name}`)) assert.ok(!looked.includes(name), `${name} ended, but has an entry`)
        else if (said(`recorded ${name}`) && !said(`ending ${name}`))
          assert.ok(looked.includes(name), `${name} has no entry`)
      }
      assert.equal(listed.includes('registered'), looked.includes('registered'))
      if (listed.includes('registered')) {
        const { outcome } = report.decisions.find(({ runId }) => runId === 'registered')
        assert.deepEqual([outcome, witnesses.registered.isGone()], ['ended', true])
      }
      for (const witness of Object.values(witnesses)) witness.close()
      return crashed
    })
    assert.ok(crashes > 30, `only ${crashes} instants`)
    console.log(`a bot that owns runs crashed at ${crashes} instants, at each possible one`)
  })

  /**
   * Lets a bot die that has, in each of several registries, a registered process and a run to be
   * kept.
   */
  async function leaveLegacies(t) {
    const bot = startBot(t)
    const legacies = []
    for (let i = 0; i < LEGACIES; i++) {
      const registry = openRegistry(t)
      const witnesses = { registered: openWitness(t), kept: openWitness(t) }
      await bot.ask('supervise', { registryPath: registry.path, graceMs: 200 })
      const pid = await bot.ask('start', program('stays'), [witnesses.registered.path], { detached: true })
      await bot.ask('registerProcess', { pid, runId: 'registered' })
      const options = { runId: 'kept', onOwnerExit: 'keep' }
      const kept = await bot.ask('spawn', program('stays'), [witnesses.kept.path], options)
      legacies.push({ registry, witnesses, pids: { registered: pid, kept: kept.pid } })
    }
    for (const { registry, witnesses } of legacies) {
      for (const witness of Object.values(witnesses)) await witness.ready(1)
      await registry.has('kept', 'running')
    }
    await bot.kill('SIGKILL')
    return legacies
  }

  test('while it adopts the runs of a dead bot leaves them to the next bot', async (t) => {
    const batches = []
    const legacy = async (n) => {
      const batch = Math.floor((n - 1) / LEGACIES)
      batches[batch] ??= leaveLegacies(t)
      return (await batches[batch])[(n - 1) % LEGACIES]
    }
    const crashes = await atEveryWrite(async (n) => {
      const { registry, witnesses, pids } = await legacy(n)
      const { crashed, said } = await crash(registry, n, 'inherit', witnesses)
      const alive = Object.keys(witnesses).filter((name) => !witnesses[name].isGone())
      const { listed, report } = await recover(registry)
      for (const name of alive) {
        assert.ok(!said(`ended ${name}`), `${name} is alive`)
        assert.ok(listed.includes(name), `${name} is alive and not listed`)
        // The bot can have sent a cancel to the keeper before it died. Then the run ends during the
        // check.
        const reported = [...report.killed, ...report.alreadyDead]
        assert.ok(reported.includes(pids[name]), `${name} is not in the report`)
      }
      for (const [name, witness] of Object.entries(witnesses)) {
        assert.equal(witness.isGone(), true, `${name}\n${witness.holders()}`)
        witness.close()
      }
      return crashed
    })
    assert.ok(crashes > 15, `only ${crashes} instants`)
    console.log(`a bot that inherits runs crashed at ${crashes} instants, at each possible one`)

    // Clean up the registries that were prepared but not used.
    for (const { registry } of (await Promise.all(batches)).flat()) await recover(registry)
  })
})
