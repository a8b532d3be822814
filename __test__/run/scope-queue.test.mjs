// A run that waits until the earlier runs of its scope are gone.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { assertGone, freshRegistry, startBot } from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import {
  assert,
  describe,
  FOR_EVER,
  openWitness,
  options,
  program,
  script,
  test,
  together,
} from '../support/prelude.mjs'
import { assertNeverStarted, earlier, replacing, scope, textOf, waiting } from '../support/scopes.mjs'
import { NO_CHANNELS, nodeOnly, notInDeno, OTHER_ARGUMENTS } from '../support/system.mjs'

describe('a run that waits for its scope', together, () => {
  test('never starts if a third run replaces it', options, async (t) => {
    const first = await earlier(t)
    const second = waiting(t, first)
    const child = first.here.spawnOwned(program('reports-witness-holder'), [first.witness.path], replacing)
    const exit = await second.child.wait()
    assert.deepEqual([exit.reason, exit.message], ['manual-cancel', 'cancelled before it was started'])
    assert.equal(await textOf(child.stdout), 'no other process\n')
    await child.wait()
    assertNeverStarted(second)
    const events = first.here.events.filter(({ runId }) => runId === second.child.runId)
    assert.deepEqual(
      events.map(({ type }) => type),
      ['exited'],
    )
    assert.equal(first.here.metrics().run_spawn_total, 2)
  })

  test('starts only if it is the last of many', options, async (t) => {
    const first = await earlier(t)
    const waiters = Array.from({ length: 10 }, () => waiting(t, first))
    const exits = await Promise.all(waiters.slice(0, -1).map(({ child }) => child.wait()))
    assert.deepEqual(new Set(exits.map(({ reason }) => reason)), new Set(['manual-cancel']))
    const last = waiters.at(-1)
    await last.witness.ready(1)
    assertGone(first.witness)
    for (const one of waiters.slice(0, -1)) assertNeverStarted(one)
    await last.child.cancel()
    assertGone(last.witness)
  })

  const cancels = {
    'cancel()': ({ child }) => child.cancel(),
    'cancel by id': ({ child }, here) => here.cancel(child.runId),
    'cancel by scope': (_, here) => here.cancel(scope),
    'await using': ({ child }) => child[Symbol.asyncDispose](),
    'kill()': ({ child }) => assert.equal(child.kill(), true),
  }
  for (const [what, act] of Object.entries(cancels)) {
    test(`never starts after ${what}`, options, async (t) => {
      const first = await earlier(t)
      const second = waiting(t, first)
      const closed = once(second.child, 'close')
      await act(second, first.here)
      const exit = await second.child.wait()
      assert.deepEqual([exit.reason, exit.exitCode, exit.signal], ['manual-cancel', null, null])
      assert.equal(second.child.state, 'exited')
      await Promise.all([first.child.wait(), closed])
      // Without the cancel it would have started by now.
      assert.equal((await first.here.spawnOwned('true', replacing).wait()).reason, 'exit')
      assertNeverStarted(second)
      assert.deepEqual(second.events, [
        ['exit', null, null],
        ['close', null, null],
      ])
    })
  }

  test('never starts after its signal was aborted', options, async (t) => {
    for (const aborted of [false, true]) {
      const first = await earlier(t)
      const controller = new AbortController()
      if (aborted) controller.abort()
      const second = waiting(t, first, { signal: controller.signal })
      const closed = new Promise((resolve) => second.child.on('close', resolve))
      controller.abort()
      await Promise.all([first.child.wait(), closed])
      assert.equal((await second.child.wait()).reason, 'manual-cancel')
      assert.equal((await first.here.spawnOwned('true', replacing).wait()).reason, 'exit')
      assertNeverStarted(second)
      assert.deepEqual(
        second.events.map(([name, error]) => [name, error?.name]),
        [
          ['error', 'AbortError'],
          ['exit', undefined],
          ['close', undefined],
        ],
      )
    }
  })

  test('never starts after a shutdown', options, async (t) => {
    const first = await earlier(t)
    const second = waiting(t, first)
    await first.here.shutdown({ graceMs: 300 })
    assertGone(first.witness)
    const { reason, message } = await second.child.wait()
    assert.deepEqual([reason, message], ['shutdown', 'ended by a shutdown of its bot before it was started'])
    assert.equal((await first.here.spawnOwned('true', replacing).wait()).reason, 'exit')
    assertNeverStarted(second)
  })

  test('has the reason of its cancel', options, async (t) => {
    const second = waiting(t, await earlier(t))
    const { reason, message } = await second.child.cancel({ reason: 'shutdown' })
    assert.deepEqual([reason, message], ['shutdown', 'ended by a shutdown of its bot before it was started'])
    assertNeverStarted(second)
  })

  test('gets the input that was written before its start', options, async (t) => {
    const { here, witness } = await earlier(t)
    const child = here.spawnOwned('cat', replacing)
    assert.equal(child.state, 'starting')
    child.stdin.write('early\n')
    child.on('spawn', () => child.stdin.end('late\n'))
    assert.equal(await textOf(child.stdout), 'early\nlate\n')
    assertGone(witness)
    assert.deepEqual((await child.wait()).exitCode, 0)
  })

  test('gets the end of input that was sent before its start', options, async (t) => {
    const { here } = await earlier(t)
    const child = here.spawnOwned('sh', ['-c', 'wc -c >&2; echo done'], replacing)
    child.stdin.end('x'.repeat(100_000))
    const [out, err] = await Promise.all([textOf(child.stdout), textOf(child.stderr)])
    assert.deepEqual([out, err.trim()], ['done\n', '100000'])
  })

  test('gets the messages that were sent before its start', nodeOnly(NO_CHANNELS, options), async (t) => {
    const { here, witness } = await earlier(t)
    const stdio = ['ignore', 'ignore', 'inherit', 'ipc']
    const child = here.spawnOwned(process.execPath, [script('answers-messages.mjs')], { ...replacing, stdio })
    assert.deepEqual([child.state, child.connected], ['starting', true])
    child.send({ early: true })
    const [answer] = await once(child, 'message')
    assertGone(witness)
    assert.deepEqual(answer, { early: true })
    child.disconnect()
    assert.equal((await child.wait()).reason, 'exit')
  })

  test('closes its channel when it is cancelled', nodeOnly(NO_CHANNELS, options), async (t) => {
    const first = await earlier(t)
    const second = waiting(t, first, { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] })
    const closed = once(second.child, 'close')
    await second.child.cancel()
    await closed
    assert.equal(second.child.connected, false)
    await first.child.wait()
    assertNeverStarted(second)
  })

  test('does not use up its deadlines, and its deadline can be extended', options, async (t) => {
    const deadlines = { timeoutMs: 2000, noOutputTimeoutMs: 2000 }
    const { here, witness } = await earlier(t, { graceMs: 2500 })
    const short = here.spawnOwned('cat', { ...replacing, ...deadlines })
    short.stdin.end()
    assert.equal((await short.wait()).reason, 'exit')
    assertGone(witness)

    const again = await earlier(t, { here })
    const longer = here.spawnOwned('cat', { ...replacing, timeoutMs: 300 })
    assert.equal(longer.extendDeadline(1200), true)
    const { message, durationMs } = await longer.wait()
    assertGone(again.witness)
    assert.equal(message, 'turn timed out after 1.5s')
    assert.ok(durationMs >= 1499, `${durationMs} ms`)
  })

  test('uses no CPU time and no memory', options, async (t) => {
    const second = waiting(t, await earlier(t))
    assert.deepEqual(await second.child.usage(), { processes: 0, cpuMs: 0, rssBytes: 0 })
    await second.child.cancel()
  })

  test('reserves its run id', options, async (t) => {
    const first = await earlier(t)
    const { child } = waiting(t, first, { runId: 'waits' })
    assert.throws(() => first.here.spawnOwned('true', { runId: 'waits' }), {
      code: 'ERR_OWNED_DUPLICATE_RUN',
    })
    await child.cancel()
  })

  test('reports that its command cannot be executed when it starts', options, async (t) => {
    const { here, witness } = await earlier(t)
    for (const _ of ['first start', 'start from the exec cache']) {
      const child = here.spawnOwned('/nonexistent/command', replacing)
      const [error] = await once(child, 'error')
      assertGone(witness)
      assert.deepEqual([error.code, error.syscall], ['ENOENT', 'spawn /nonexistent/command'])
      assert.equal((await child.wait()).reason, 'spawn-error')
    }
    assert.equal(here.metrics().run_exit_total['spawn-error'], 2)
  })

  test('keeps its bot alive', notInDeno(OTHER_ARGUMENTS, options), async (t) => {
    const { here, witness } = await earlier(t)
    const code = `import { spawnOwned } from 'spawn-owned'
      const child = spawnOwned('echo', ['started'], { ...${JSON.stringify(replacing)}, stdio: ['ignore', 'inherit', 'inherit'] })
      console.log(child.state)`
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: here.registryPath }
    const args = ['--input-type=module', '-e', code]
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: script('.'), env })
    assert.equal(stdout, 'starting\nstarted\n')
    assertGone(witness)
  })

  test('never starts if its bot is killed', options, async (t) => {
    const bot = await startBot(t, freshRegistry())
    const [first, second] = [openWitness(t), openWitness(t)]
    const tree = treeNamed('ignores-sigterm')
    await bot.ask('spawn', ...tree.command(first.path), { ...scope, graceMs: FOR_EVER })
    await first.ready(tree.ready)
    const { pid } = await bot.ask('spawn', program('stays'), [second.path], replacing)
    assert.equal(pid, undefined)
    await bot.kill()
    await first.gone(60_000)
    second.release()
    assertGone(second)
  })
})
