// Supervisor.close: releases thread, descriptors and memory, and loses no registry entry.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { createSupervisor } from 'spawn-owned'
import { assertAlive, assertGone, entriesOf, freshRegistry, supervise, until } from '../support/bots.mjs'
import { kept } from '../support/orphans.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { isLinux, NO_KEEPER, posixOnly } from '../support/system.mjs'

const options = { timeout: 60_000 }
const COUNT = 200
const closed = { code: 'ERR_OWNED_CLOSED' }

const open = (registryPath) => createSupervisor({ registryPath, eventLogPath: null })
const count = (what) => readdirSync(`/proc/self/${what}`).length
/** Reads a file or link in /proc/self. Empty if the thread or descriptor is gone. */
const readNow = (read) => {
  try {
    return String(read())
  } catch {
    return ''
  }
}
const isPidfd = (fd) => readNow(() => readlinkSync(`/proc/self/fd/${fd}`)).includes('pidfd')
const pidfds = () => readdirSync('/proc/self/fd').filter(isPidfd).length
/** The pidfds of one process. Other tests of this file may still close theirs. */
const pidfdsOf = (pid) =>
  readdirSync('/proc/self/fdinfo').filter((fd) =>
    new RegExp(`^Pid:\\t${pid}$`, 'm').test(readNow(() => readFileSync(`/proc/self/fdinfo/${fd}`))),
  ).length
/** The threads that write registries. */
const writers = () =>
  readdirSync('/proc/self/task').filter(
    (task) => readNow(() => readFileSync(`/proc/self/task/${task}/comm`)).trim() === 'spawn-owned-log',
  ).length

/** Starts a plain child that stays alive. */
async function stays(t) {
  const witness = openWitness(t)
  const child = spawn(program('stays'), [witness.path], { stdio: 'ignore', detached: true })
  t.after(() => child.kill('SIGKILL'))
  await witness.ready(1)
  return { child, witness }
}

describe('close', { timeout: 120_000 }, () => {
  test('releases thread and descriptors', {
    ...options,
    skip: !isLinux && 'counts in /proc',
  }, async (t) => {
    const { child } = await stays(t)
    const use = () => {
      const supervisor = open(freshRegistry())
      supervisor.registerProcess({ pid: child.pid })
      return supervisor
    }
    const end = async (supervisor) => {
      supervisor.unregisterProcess(child)
      await supervisor.close()
    }
    // The first use starts what stays for good: the native threads and the stock of keepers.
    await end(use())
    const before = { task: count('task'), fd: count('fd') }
    const supervisors = Array.from({ length: COUNT }, use)
    // A new thread sets its own name, so the name comes after the call that starts the thread.
    await until(() => writers() >= COUNT, 'each path has a thread')
    await Promise.all(supervisors.map(end))
    await until(
      () => count('task') <= before.task && count('fd') <= before.fd,
      'threads and descriptors are released',
    )
  })

  test('leaves no descriptor of a registered process whose root ended before unregisterProcess', {
    ...options,
    skip: !isLinux && 'counts in /proc',
  }, async (t) => {
    const supervisor = open(freshRegistry())
    const witness = openWitness(t)
    const before = pidfds()
    const root = spawn(program('ignores-sigterm'), [witness.path], { stdio: 'ignore', detached: true })
    await witness.ready(2)
    supervisor.registerProcess({ pid: root.pid, runId: 'tree' })
    await until(() => supervisor.list()[0].members?.length === 1, 'the registry lists the other member')
    const [{ members }] = supervisor.list()
    const exit = once(root, 'exit')
    root.kill('SIGKILL')
    await exit
    const member = Number.parseInt(members[0], 10)
    await until(() => pidfdsOf(member) > 0, 'the supervisor watches the other member')
    assert.equal(supervisor.unregisterProcess('tree'), true)
    await until(() => pidfds() <= before && pidfdsOf(member) === 0, 'the pidfds are closed')
    assertAlive(witness)
    process.kill(member, 'SIGKILL')
    await supervisor.close()
  })

  test('ends all runs of the supervisor, and leaves the registry file up to date', options, async (t) => {
    const path = freshRegistry()
    const supervisor = open(path)
    const witness = openWitness(t)
    const run = supervisor.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
    const registered = await stays(t)
    supervisor.registerProcess({ pid: registered.child.pid })
    await witness.ready(1)
    await Promise.all([supervisor.close({ graceMs: 1000 }), supervisor.close({ graceMs: 1000 })])
    assertGone(witness)
    assertGone(registered.witness)
    assert.equal((await run.wait()).reason, 'shutdown')
    assert.deepEqual(entriesOf(path), [])
    assert.equal(existsSync(`${path}.journal`), false)
  })

  test('makes every other method fail from the call on', options, async () => {
    const supervisor = open(freshRegistry())
    const closing = supervisor.close()
    for (const call of [
      () => supervisor.spawnOwned('cat'),
      () => supervisor.registerProcess({ pid: process.ppid }),
      () => supervisor.unregisterProcess('x'),
      () => supervisor.list(),
      () => supervisor.watchOrphans(),
      () => supervisor.installSignalHandlers(),
      () => supervisor.metrics(),
      () => supervisor.metricsText(),
    ])
      assert.throws(call, closed)
    for (const call of [
      () => supervisor.cancel('x'),
      () => supervisor.reapOrphans(),
      () => supervisor.findOrphans(),
      () => supervisor.endOrphans(),
      () => supervisor.survey(),
      () => supervisor.adopt('x'),
      () => supervisor.ensureService({ name: 'x', command: 'cat' }),
      () => supervisor.stopService('x'),
      () => supervisor.shutdown(),
    ])
      await assert.rejects(call(), closed)
    await closing
    await supervisor.close()
    await supervisor[Symbol.asyncDispose]()
  })

  test('waits for a running reap, which then ends nothing', posixOnly(NO_KEEPER, options), async (t) => {
    const path = freshRegistry()
    const orphan = await kept(t, { path })
    for (const policy of ['terminate', 'adopt', () => 'adopt']) {
      const supervisor = open(path)
      let hasEnded = false
      const reaping = assert.rejects(supervisor.reapOrphans({ policy }), closed).finally(() => {
        hasEnded = true
      })
      await supervisor.close({ graceMs: 0 })
      assert.ok(hasEnded, 'the reap ends before the close')
      await reaping
      assertAlive(orphan.witness)
    }
    assert.deepEqual((await supervise(path).reapOrphans({ graceMs: 0 })).killed, [orphan.pid])
  })

  test('starts no service that was requested before', options, async () => {
    const path = freshRegistry()
    const supervisor = open(path)
    const refused = assert.rejects(
      supervisor.ensureService({ name: 'late', command: 'cat', ready: () => true }),
      closed,
    )
    await supervisor.close()
    await refused
    assert.deepEqual(open(path).list(), [])
  })

  test('leaves the other supervisors on its path alone', options, async (t) => {
    const path = freshRegistry()
    const [first, second] = [open(path), open(path)]
    const witness = openWitness(t)
    const run = second.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
    await witness.ready(1)
    first.spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
    await first.close({ graceMs: 0 })
    assert.deepEqual(
      second.list().map(({ runId }) => runId),
      [run.runId],
    )
    assert.equal((await run.cancel({ graceMs: 1000 })).reason, 'manual-cancel')
    await second.close()
    const third = open(path)
    const again = third.spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
    await third.close({ graceMs: 0 })
    assert.equal((await again.wait()).reason, 'shutdown')
  })

  test('stops orphan watches, and removes signal handlers', options, async () => {
    const supervisor = open(freshRegistry())
    const before = process.listenerCount('SIGTERM')
    supervisor.installSignalHandlers()
    const watch = supervisor.watchOrphans()
    await watch.check()
    await supervisor.close()
    assert.equal(watch.stats.watching, false)
    assert.equal(process.listenerCount('SIGTERM'), before)
  })

  test('creates no file if the supervisor was never used', options, async () => {
    const path = freshRegistry()
    await open(path).close()
    assert.equal(existsSync(path), false)
  })

  test('lets the bot exit', options, async () => {
    const code = `
      import { close, spawnOwned } from 'spawn-owned'
      spawnOwned('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
      await close({ graceMs: 0 })
      try { spawnOwned('cat') } catch (error) { console.log(error.code) }`
    const bot = spawn(process.execPath, ['--input-type=module', '-e', code], {
      cwd: new URL('../..', import.meta.url),
      env: { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const output = []
    bot.stdout.on('data', (data) => output.push(data))
    const [exit] = await once(bot, 'close')
    assert.deepEqual([exit, Buffer.concat(output).toString()], [0, 'ERR_OWNED_CLOSED\n'])
  })
})

for (const end of ['close', 'shutdown'])
  test(
    `${end} releases the callback of native threads, and a later run gets events again`,
    options,
    async (t) => {
      // In a process of its own: other tests of this file have runs too.
      const code = `
      const callbacks = new Map()
      require('node:async_hooks').createHook({
        init: (id, type) => type === 'napi_rs_threadsafe_function' && callbacks.set(id, type),
        destroy: (id) => callbacks.delete(id),
      }).enable()
      const { createSupervisor } = require('spawn-owned')
      const once = async () => {
        const supervisor = createSupervisor({ registryPath: process.argv[1] })
        const { ok } = await supervisor.spawnOwned(process.execPath, ['-e', '0']).wait()
        const during = callbacks.size > 0
        await supervisor[process.argv[2]]()
        if (process.argv[2] === 'shutdown') await supervisor.close()
        for (let turn = 0; callbacks.size > 0 && turn < 1000; turn++) await new Promise((r) => setTimeout(r, 10))
        return [ok, during, callbacks.size]
      }
      once().then(async (first) => console.log(JSON.stringify([first, await once()])))`
      const args = ['-e', code, freshRegistry(), end]
      const bot = spawn(process.execPath, args, {
        stdio: ['ignore', 'pipe', 'inherit'],
        cwd: fileURLToPath(new URL('../..', import.meta.url)),
      })
      t.after(() => bot.kill())
      const [results] = await once(bot.stdout, 'data')
      assert.deepEqual(JSON.parse(results), [
        [true, true, 0],
        [true, true, 0],
      ])
    },
  )
