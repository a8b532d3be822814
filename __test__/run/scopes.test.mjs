// replaceExistingScope: a run starts only after all earlier runs of its scope are gone.
import { once } from 'node:events'
import {
  altered,
  assertAlive,
  assertGone,
  fileHas,
  freshRegistry,
  startBot,
  supervise,
  until,
} from '../support/bots.mjs'
import { treeNamed, treeOptions } from '../support/hostile-trees.mjs'
import { assert, describe, openWitness, options, program, test, together } from '../support/prelude.mjs'
import { assertNeverStarted, earlier, replacing, scope, textOf, waiting } from '../support/scopes.mjs'
import { isWindows, linuxOnly, NO_NAMESPACES } from '../support/system.mjs'

describe('with replaceExistingScope, a new run', together, () => {
  test('starts at once if the scope has no run', options, async () => {
    const here = supervise(freshRegistry())
    for (const command of ['true', 'true']) {
      const child = here.spawnOwned(command, { ...replacing })
      assert.ok(child.pid > 0)
      assert.equal(child.state, 'running')
      assert.equal((await child.wait()).reason, 'exit')
    }
  })

  for (const name of ['ignores-sigterm', 'half-setsid', 'cleared-environment']) {
    test(
      `starts after an earlier run of this bot is gone: ${name}`,
      treeOptions(treeNamed(name), options),
      async (t) => {
        const first = await earlier(t, { tree: treeNamed(name) })
        const { here, witness } = first
        const child = here.spawnOwned(program('reports-witness-holder'), [witness.path], replacing)
        assert.deepEqual([child.state, child.pid], ['starting', undefined])
        const text = textOf(child.stdout)
        await once(child, 'spawn')
        assertGone(witness)
        assert.ok(child.pid > 0)
        assert.equal(await text, 'no other process\n')
        assert.deepEqual(
          [(await first.child.wait()).reason, (await child.wait()).reason],
          ['manual-cancel', 'exit'],
        )
      },
    )
  }

  test('replaces all earlier runs of its scope, and no other run', options, async (t) => {
    const here = supervise(freshRegistry())
    const runs = []
    for (const name of ['ignores-sigterm', isWindows ? 'half-setsid' : 'stopped', 'double-fork-daemon'])
      runs.push(await earlier(t, { here, tree: treeNamed(name) }))
    const others = [
      await earlier(t, { here, scopeKey: 'the-scope-2' }),
      await earlier(t, { here, scopeKey: undefined }),
    ]
    const child = here.spawnOwned('true', replacing)
    await once(child, 'spawn')
    for (const { witness } of runs) assertGone(witness)
    for (const { witness } of others) assertAlive(witness)
    await Promise.all(others.map((other) => other.child.cancel({ graceMs: 0 })))
  })

  test('replaces a run of another bot, and that bot gets the exit', options, async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const tree = treeNamed('ignores-sigterm')
    const [command, args] = tree.command(witness.path)
    const { runId } = await bot.ask('spawn', command, args, { ...scope, graceMs: 700 })
    await witness.ready(tree.ready)
    const here = supervise(path)
    const child = here.spawnOwned(program('reports-witness-holder'), [witness.path], replacing)
    assert.equal(child.state, 'starting')
    assert.equal(await textOf(child.stdout), 'no other process\n')
    assert.equal((await bot.ask('wait', runId)).reason, 'manual-cancel')
    assert.equal((await child.wait()).reason, 'exit')
    await fileHas(path, 0)
  })

  test('replaces a run of another supervisor in the same process', options, async (t) => {
    const { child: first, here, witness } = await earlier(t)
    const child = supervise(here.registryPath).spawnOwned(
      program('reports-witness-holder'),
      [witness.path],
      replacing,
    )
    assert.equal(await textOf(child.stdout), 'no other process\n')
    assert.equal((await first.wait()).reason, 'manual-cancel')
  })

  test('replaces a registered process', options, async (t) => {
    const here = supervise(freshRegistry())
    const bot = await startBot(t, freshRegistry())
    const witness = openWitness(t)
    const pid = await bot.ask('child', program('stays'), [witness.path], { detached: true })
    await witness.ready(1)
    here.registerProcess({ pid, ...scope })
    const child = here.spawnOwned(program('reports-witness-holder'), [witness.path], replacing)
    assert.equal(await textOf(child.stdout), 'no other process\n')
  })

  test('runs beside the earlier one without the option', options, async (t) => {
    const { here, witness } = await earlier(t)
    assert.equal((await here.spawnOwned('true', scope).wait()).reason, 'exit')
    assertAlive(witness)
  })
})

describe('replaceExistingScope', together, () => {
  test('starts nothing if an earlier run cannot be ended', linuxOnly(NO_NAMESPACES, options), async (t) => {
    const first = await earlier(t)
    const [record] = await until(
      () => first.here.list().length === 1 && first.here.list(),
      'the registry entry is written',
    )
    // As if the entry were of another container.
    const ofAnotherNamespace = (token) => altered(token, { ns: 4 })
    const keeper = { ...record.keeper, startToken: ofAnotherNamespace(record.keeper.startToken) }
    const entry = {
      ...record,
      startToken: ofAnotherNamespace(record.startToken),
      keeper,
      botStartToken: ofAnotherNamespace(record.botStartToken),
    }
    const here = supervise(freshRegistry([entry]))
    const second = waiting(t, { here })
    const [error] = await once(second.child, 'error')
    assert.equal(error.code, 'ERR_OWNED_SCOPE_BUSY', error.stack)
    assert.match(error.message, /the-scope.*Nothing was started/)
    const exit = await second.child.wait()
    assert.deepEqual([exit.reason, exit.message], ['spawn-error', error.message])
    assertNeverStarted(second)
    assertAlive(first.witness)
  })

  test('is refused without a scopeKey, and if it is not boolean', options, () => {
    const here = supervise(freshRegistry())
    assert.throws(() => here.spawnOwned('true', { replaceExistingScope: true }), {
      code: 'ERR_INVALID_ARG_VALUE',
      message: /scopeKey/,
    })
    assert.throws(() => here.spawnOwned('true', { ...scope, replaceExistingScope: 'yes' }), {
      code: 'ERR_INVALID_ARG_TYPE',
    })
    assert.deepEqual(here.list(), [])
  })
})
