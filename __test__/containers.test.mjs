// Bots in PID namespaces of their own, as in containers: what docs/containers.md says of PID 1, its signals and its zombies, of registries that
// outlive a container, and of numbers that are low.
import assert from 'node:assert/strict'
import { closeSync, openSync } from 'node:fs'
import { describe, test } from 'node:test'
import {
  assertAlive,
  assertGone,
  childrenOf,
  entriesOf,
  freshRegistry,
  killWithHelpers,
  startBot,
  stateOf,
  until,
} from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { namespace, withoutNamespace } from './support/namespace.mjs'
import { isLinux, NO_NAMESPACES } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 60_000, skip: isLinux ? withoutNamespace : NO_NAMESPACES }
const GONE_MS = 30_000
const LEASE_MS = 1000

/** A bot that is PID 1 of a container, and its number here. */
async function contained(t, path = freshRegistry(), more = {}) {
  const bot = await startBot(t, path, { within: namespace, ...more })
  const [init] = childrenOf(bot.pid)
  return { bot, init, path }
}

/** A run of it, standing. */
async function standing(t, { bot }, { fixture = 'stays', ready = 1, ...more } = {}) {
  const witness = openWitness(t)
  const { runId, pid } = await bot.ask('spawn', program(fixture), [witness.path], more)
  await witness.ready(ready)
  return { runId, pid, witness }
}

describe('a bot that is PID 1', options, () => {
  const zombiesOf = (init) => childrenOf(init).filter((pid) => stateOf(pid) === 'Z')

  test('has no zombie of what it owns', options, async (t) => {
    const container = await contained(t)
    const run = await standing(t, container, { fixture: 'double-fork-daemon', ready: 2 })
    await container.bot.ask('cancelRun', run.runId)
    assertGone(run.witness)
    assert.deepEqual(zombiesOf(container.init), [])
  })

  test('has those of child_process, as ever', options, async (t) => {
    const { bot, init } = await contained(t)
    await bot.ask('child', 'sh', ['-c', 'true & exit'])
    await until(() => zombiesOf(init).length === 1, 'there is a zombie')
  })

  test('does not hear SIGTERM without a handler', options, async (t) => {
    const container = await contained(t)
    const run = await standing(t, container)
    process.kill(container.init, 'SIGTERM')
    assert.equal(await container.bot.ask('state', run.runId), 'running')
  })

  test('ends its runs and exits with 143 if it has the handlers', options, async (t) => {
    const container = await contained(t)
    const run = await standing(t, container)
    await container.bot.ask('installSignalHandlers')
    process.kill(container.init, 'SIGTERM')
    assert.equal(await container.bot.ended, 143)
    assertGone(run.witness)
  })

  test('takes everything with it when it is killed, also what was to be kept', options, async (t) => {
    const container = await contained(t)
    const run = await standing(t, container, { onOwnerExit: 'keep' })
    process.kill(container.init, 'SIGKILL')
    await run.witness.gone(GONE_MS)
  })
})

describe('entries of a container that was killed', options, () => {
  test('are left alone by the next one: nobody there can judge them', options, async (t) => {
    const first = await contained(t, freshRegistry(), { leaseMs: LEASE_MS })
    const run = await standing(t, first)
    // So that the next one does not get the same number: the kernel likes to give it out again.
    const pinned = openSync(`/proc/${first.init}/ns/pid`, 'r')
    t.after(() => closeSync(pinned))
    // With its helpers: a keeper that is killed last may have written down how its run ended.
    await killWithHelpers(first.init)
    await run.witness.gone(GONE_MS)

    const next = await contained(t, first.path)
    const decided = async () => (await next.bot.ask('reap')).decisions.map(({ facts }) => facts.reason)
    // First its lease is respected.
    await until(async () => String(await decided()) === 'other-namespace', 'the lease has expired')
    assert.deepEqual(
      (await next.bot.ask('list')).map(({ runId }) => runId),
      [run.runId],
    )
  })
})

describe('a bot that is restarted within a container', options, () => {
  /** Its PID 1 is a shell that stays, and starts the bot. */
  async function restartable(t) {
    const path = freshRegistry()
    const bot = await startBot(t, path, { within: [...namespace, 'sh', '-c', '"$@"; exec sleep 600', 'sh'] })
    const [init] = childrenOf(bot.pid)
    const [pid] = childrenOf(init)
    const within = ['nsenter', '-t', `${init}`, '-p', '-m']
    return { bot, pid, again: () => startBot(t, path, { within }) }
  }

  test('has nothing to reap: the keepers of the one before have seen to it', options, async (t) => {
    const container = await restartable(t)
    const run = await standing(t, container)
    process.kill(container.pid, 'SIGKILL')
    await run.witness.gone(GONE_MS)
    const { killed, skipped } = await (await container.again()).ask('reap')
    assert.deepEqual([killed, skipped], [[], []])
  })

  test(
    'does not reap what has a low number, if they were killed, too; a cancel ends it',
    options,
    async (t) => {
      const container = await restartable(t)
      const run = await standing(t, container)
      await killWithHelpers(container.pid)
      assertAlive(run.witness)
      const next = await container.again()
      const { killed, decisions } = await next.ask('reap')
      assert.deepEqual(
        [killed, decisions.map(({ facts }) => facts.reason)],
        [[], ['refused-low-pid']],
        JSON.stringify(decisions),
      )
      assertAlive(run.witness)
      assert.equal((await next.ask('cancel', run.runId)).outcome, 'cancelled')
      assertGone(run.witness)
    },
  )
})

describe('a sandbox without /proc/sys', options, () => {
  const hidden = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs tmpfs /proc/sys; exec "$@"', 'sh']
  const code = 'ERR_OWNED_NO_BOOT_ID'

  test('has no boot id, so nobody can be named: nothing is started or registered', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path, { within: hidden })
    const witness = openWitness(t)
    await assert.rejects(bot.ask('spawn', program('stays'), [witness.path]), { code })
    const pid = await bot.ask('child', 'sleep', ['600'])
    await assert.rejects(bot.ask('register', { pid }), { code })
    process.kill(pid, 'SIGKILL')
    witness.release()
    assertGone(witness)
    assert.deepEqual(entriesOf(path), [])
  })
})
