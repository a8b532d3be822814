// Bots in their own PID namespaces, as in containers. The tests show what docs/containers.md says
// about PID 1, its signals and its zombies, about registries that outlive a container, and about
// low PIDs.
import { closeSync, openSync } from 'node:fs'
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
} from '../support/bots.mjs'
import { namespace, withoutNamespace } from '../support/namespace.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { isLinux, NO_NAMESPACES } from '../support/system.mjs'

const options = { timeout: 60_000, skip: isLinux ? withoutNamespace : NO_NAMESPACES }
const GONE_MS = 30_000
const LEASE_MS = 1000

/** A bot that is PID 1 of a container, and its PID on the host. */
async function contained(t, path = freshRegistry(), more = {}) {
  const bot = await startBot(t, path, { within: namespace, ...more })
  const [init] = childrenOf(bot.pid)
  return { bot, init, path }
}

/** Starts a run of the bot and waits until it is ready. */
async function standing(t, { bot }, { fixture = 'stays', ready = 1, ...more } = {}) {
  const witness = openWitness(t)
  const { runId, pid } = await bot.ask('spawn', program(fixture), [witness.path], more)
  await witness.ready(ready)
  return { runId, pid, witness }
}

describe('a bot that is PID 1', options, () => {
  const zombiesOf = (init) => childrenOf(init).filter((pid) => stateOf(pid) === 'Z')

  test('has no zombies of its runs', options, async (t) => {
    const container = await contained(t)
    const run = await standing(t, container, { fixture: 'double-fork-daemon', ready: 2 })
    await container.bot.ask('cancelRun', run.runId)
    assertGone(run.witness)
    assert.deepEqual(zombiesOf(container.init), [])
  })

  test('has zombies of child_process, as without this package', options, async (t) => {
    const { bot, init } = await contained(t)
    await bot.ask('child', 'sh', ['-c', 'true & exit'])
    await until(() => zombiesOf(init).length === 1, 'there is a zombie')
  })

  test('ignores SIGTERM without a handler', options, async (t) => {
    const container = await contained(t)
    const run = await standing(t, container)
    process.kill(container.init, 'SIGTERM')
    assert.equal(await container.bot.ask('state', run.runId), 'running')
  })

  test('ends its runs and exits with 143 if it installed the signal handlers', options, async (t) => {
    const container = await contained(t)
    const run = await standing(t, container)
    await container.bot.ask('installSignalHandlers')
    process.kill(container.init, 'SIGTERM')
    assert.equal(await container.bot.ended, 143)
    assertGone(run.witness)
  })

  test('ends all its runs when it is killed, also those to be kept', options, async (t) => {
    const container = await contained(t)
    const run = await standing(t, container, { onOwnerExit: 'keep' })
    process.kill(container.init, 'SIGKILL')
    await run.witness.gone(GONE_MS)
  })
})

describe('the registry entries of a killed container', options, () => {
  test('are left alone by the next container, which cannot check their processes', options, async (t) => {
    const first = await contained(t, freshRegistry(), { leaseMs: LEASE_MS })
    const run = await standing(t, first)
    // Keeps the namespace alive, so that the next one does not get the same inode number: the
    // kernel reuses it quickly.
    const namespaceFd = openSync(`/proc/${first.init}/ns/pid`, 'r')
    t.after(() => closeSync(namespaceFd))
    // Kill the helpers too: a keeper that dies last could record how its run ended.
    await killWithHelpers(first.init)
    await run.witness.gone(GONE_MS)

    const next = await contained(t, first.path)
    const decided = async () => (await next.bot.ask('reap')).decisions.map(({ facts }) => facts.reason)
    // Until the lease expires, the decision has another reason.
    await until(async () => String(await decided()) === 'other-namespace', 'the lease has expired')
    assert.deepEqual(
      (await next.bot.ask('list')).map(({ runId }) => runId),
      [run.runId],
    )
  })
})

describe('a bot that restarts within a container', options, () => {
  /** A container whose PID 1 is a shell that stays and starts the bot. */
  async function restartable(t) {
    const path = freshRegistry()
    const bot = await startBot(t, path, { within: [...namespace, 'sh', '-c', '"$@"; exec sleep 600', 'sh'] })
    const [init] = childrenOf(bot.pid)
    const [pid] = childrenOf(init)
    const within = ['nsenter', '-t', `${init}`, '-p', '-m']
    return { bot, pid, again: () => startBot(t, path, { within }) }
  }

  test('has nothing to reap, because the keepers of its predecessor ended the runs', options, async (t) => {
    const container = await restartable(t)
    const run = await standing(t, container)
    process.kill(container.pid, 'SIGKILL')
    await run.witness.gone(GONE_MS)
    const { killed, skipped } = await (await container.again()).ask('reap')
    assert.deepEqual([killed, skipped], [[], []])
  })

  test(
    'does not reap low PIDs if the keepers were killed too, but a cancel ends them',
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

  test(
    'has no boot id to identify processes with, so nothing is started or registered',
    options,
    async (t) => {
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
    },
  )
})
