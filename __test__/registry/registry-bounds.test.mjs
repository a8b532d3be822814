// The registry does not grow without bound, its cost does not grow with it, and it does not report
// dead runs as alive.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { statSync } from 'node:fs'
import { captureStartToken } from 'spawn-owned'
import { gone } from '../support/abandoned.mjs'
import { altered, keeperOf, gone as processGone, supervise, until } from '../support/bots.mjs'
import { spawnOwnedCli } from '../support/cli.mjs'
import { startBot } from '../support/obedient-bot.mjs'
import { crashed, kept, owned } from '../support/orphans.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { openRegistry } from '../support/registry.mjs'
import { isWindows, NO_KEEPER, posixOnly } from '../support/system.mjs'

const limit = { timeout: 120_000 }
const HOUR = 60 * 60 * 1000
const AT_MOST = 1000

/** Entries of runs that ended after their bot, at these ages. No process has these PIDs. */
function ended(bot, ages, more) {
  const here = captureStartToken(process.pid)
  return ages.map((age, index) => {
    const pid = 4_100_000 + index
    const atMs = Date.now() - age
    return {
      pid,
      startedAt: atMs - 1000,
      sessionId: null,
      botPid: bot.pid,
      commandPreview: 'ended',
      runId: `ended-${index}`,
      state: 'exited',
      startToken: altered(here, { pid }),
      botStartToken: bot.token,
      ownerInstanceId: 'another',
      leaseExpiresAtMs: atMs,
      pgid: isWindows ? null : pid,
      containment: isWindows ? 'process' : 'keeper',
      graceMs: 1000,
      onOwnerExit: 'kill',
      createdAtMs: atMs - 1000,
      updatedAtMs: atMs,
      lastOutputAtMs: null,
      exit: { atMs, reason: 'owner-exit', ending: 'owner-exit', exitCode: null, signal: 15, survivors: 0 },
      ...more,
    }
  })
}

const exited = (registry) => registry.entries().filter(({ state }) => state === 'exited')

describe('entries of ended runs', () => {
  test('are removed by a checkpoint when they are too old or too many', limit, async (t) => {
    const registry = openRegistry(t)
    const bot = await gone()
    // The ages differ by a second, because the clock moves on while the entries are created.
    const ages = Array.from({ length: AT_MOST + 50 }, (_, index) => 60_000 + index * 1000)
    const old = ended(bot, [25 * HOUR], {
      runId: 'old',
      startToken: altered(captureStartToken(process.pid), { pid: 4_200_000 }),
      pid: 4_200_000,
    })
    const keptRun = {
      onOwnerExit: 'keep',
      pid: 4_300_000,
      startToken: altered(captureStartToken(process.pid), { pid: 4_300_000 }),
    }
    const [keptEntry] = ended(bot, [25 * HOUR], { ...keptRun, runId: 'kept' })
    registry.write(JSON.stringify({ version: 1, entries: [...ended(bot, ages), ...old, keptEntry] }))
    const supervisor = registry.supervise()
    const run = supervisor.spawnOwned('cat', [], { stdio: ['pipe', 'ignore', 'ignore'], runId: 'live' })
    await registry.has('live', 'running')
    assert.equal(exited(registry).length, AT_MOST + 1)
    assert.equal(registry.entry('old'), undefined, 'older than a day')
    assert.ok(registry.entry('kept'), 'the next bot can ask how a kept run ended')
    assert.ok(registry.entry('ended-0'), 'the newest entries stay')
    assert.equal(registry.entry(`ended-${AT_MOST}`), undefined, 'the oldest entries are removed')
    run.stdin.end()
    await run.wait()
    const { alreadyDead } = await supervisor.reapOrphans()
    assert.equal(alreadyDead.length, AT_MOST + 1, 'the remaining entries are reported')
    await until(() => exited(registry).length === 0, 'the reported entries are removed')
  })

  test('are removed by the keeper of a dead bot', posixOnly(NO_KEEPER, limit), async (t) => {
    const registry = openRegistry(t)
    const ages = Array.from({ length: AT_MOST }, (_, index) => 60_000 + index * 1000)
    registry.write(JSON.stringify({ version: 1, entries: ended(await gone(), ages) }))
    const bot = startBot(t, { options: { registryPath: registry.path } })
    const { runId } = await bot.ask('spawn', program('stays'), [openWitness(t).path])
    // By then its keeper knows the registry.
    await registry.has(runId, 'running')
    await bot.kill('SIGKILL')
    await registry.has(runId, 'exited')
    assert.equal(exited(registry).length, AT_MOST)
    assert.equal(registry.entry(`ended-${AT_MOST - 1}`), undefined, 'the oldest entry is removed')
  })
})

describe('while another process holds the lock', () => {
  test(
    'spawn and list stay fast, the bot names the holder, and the file is updated later',
    posixOnly('flock', limit),
    async (t) => {
      const registry = openRegistry(t)
      const supervisor = registry.supervise()
      const events = []
      supervisor.on('event', (event) => event.type === 'registry' && events.push(event))
      const first = supervisor.spawnOwned('cat', [], { stdio: ['pipe', 'ignore', 'ignore'], runId: 'first' })
      await registry.atRest('first')
      const witness = openWitness(t)
      const holder = spawn(program('holds-lock'), [witness.path, registry.lock], { stdio: 'ignore' })
      t.after(() => holder.kill('SIGKILL'))
      await witness.ready(1)
      const run = supervisor.spawnOwned('cat', [], { stdio: ['pipe', 'ignore', 'ignore'], runId: 'second' })
      const { kind, message, path } = await until(() => events[0], 'the bot reports the lock')
      assert.deepEqual({ kind, path }, { kind: 'locked', path: registry.lock })
      if (process.platform === 'linux') assert.ok(message.includes(`process ${holder.pid} (`), message)
      assert.equal(supervisor.list({ runId: 'second' }).length, 1)
      assert.equal(registry.entry('second'), undefined)
      assert.throws(() => supervisor.spawnOwned('cat', [], { runId: 'second' }), {
        code: 'ERR_OWNED_DUPLICATE_RUN',
      })
      run.stdin.end()
      first.stdin.end()
      await Promise.all([run.wait(), first.wait()])
      assert.deepEqual(supervisor.list(), [])
      assert.ok(statSync(registry.journal).size > 0)
      holder.kill('SIGKILL')
      await once(holder, 'exit')
      await until(() => registry.entries().length === 0, 'the file is up to date')
      assert.equal(events.length, 1, 'one event for one lock')
    },
  )
})

describe('list and survey', () => {
  /** The state of a run according to list and survey. */
  async function statesOf(path, runId) {
    const next = supervise(path)
    const [listed] = next.list({ runId })
    const [surveyed] = await next.survey({ runId })
    return { next, states: [listed?.state, surveyed?.record.state] }
  }

  test('report a run as exited whose bot, keeper and processes were killed', limit, async (t) => {
    const { path, runId, witness, pid } = await crashed(t)
    assert.deepEqual((await statesOf(path, runId)).states, ['running', 'running'], 'the processes are alive')
    const [{ members }] = await supervise(path).survey({ runId })
    for (const member of members) process.kill(member.pid, 'SIGKILL')
    await processGone(pid)
    await until(() => witness.isGone(), 'all processes have ended')
    const { next, states } = await statesOf(path, runId)
    assert.deepEqual(states, ['exited', 'exited'])
    const { stdout } = await spawnOwnedCli(path, ['ps'])
    assert.match(stdout, new RegExp(`${runId.slice(0, 8)}\\S*\\s+-\\s+exited `))
    const { alreadyDead } = await next.reapOrphans()
    assert.deepEqual(alreadyDead, [pid])
    assert.deepEqual((await statesOf(path, runId)).states, [undefined, undefined])
  })

  test(
    'report a run as running whose bot lives, and one that its keeper keeps',
    posixOnly(NO_KEEPER, limit),
    async (t) => {
      const alive = await owned(t)
      assert.deepEqual((await statesOf(alive.path, alive.runId)).states, ['running', 'running'])
      const left = await kept(t)
      assert.ok(keeperOf(left.record) > 0)
      assert.deepEqual((await statesOf(left.path, left.runId)).states, ['running', 'running'])
      await left.next.cancel(left.runId)
    },
  )
})
