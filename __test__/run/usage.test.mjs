// usage(): processes, CPU time and memory of a whole tree.
import { assertGone, freshRegistry, supervise, until } from '../support/bots.mjs'
import { treeNamed, treeOptions } from '../support/hostile-trees.mjs'
import { assert, describe, openWitness, options, program, test, together } from '../support/prelude.mjs'
import {
  isWindows,
  NO_TIME_OF_THE_DEAD,
  notOnMacos,
  notUnderWine,
  WINE_COUNTS_NO_TIME,
} from '../support/system.mjs'

const nothing = { processes: 0, cpuMs: 0, rssBytes: 0 }
/** The kernel counts user and system time in ticks, and rounds each down. */
const ROUNDING_MS = 20

async function standing(t, command, args, ready, more) {
  const witness = openWitness(t)
  const { spawnOwned } = supervise(freshRegistry())
  const stdio = ['pipe', 'ignore', 'ignore']
  const child = spawnOwned(command, [witness.path, ...args], { stdio, graceMs: 300, ...more })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  await witness.ready(ready)
  return { child, witness }
}

const ofTree = (t, { command, ready }) => {
  const [file, args] = command('')
  return standing(t, file, args.slice(1), ready)
}

describe('usage().processes', together, () => {
  for (const name of ['tree-of-100', 'half-setsid', 'double-fork-daemon', 'cleared-environment']) {
    const tree = treeNamed(name)
    test(`counts every process of the tree: ${name}`, treeOptions(tree, options), async (t) => {
      const { child } = await ofTree(t, tree)
      const { processes, rssBytes } = await child.usage()
      assert.equal(processes, tree.ready)
      assert.ok(rssBytes >= processes * 4096, `${rssBytes} bytes`)
    })
  }

  test('does not count ended processes', options, async (t) => {
    const { child } = await standing(t, program('burns-and-dies'), ['orphaned', '1'], 1)
    // The child is a zombie for a moment.
    await until(async () => (await child.usage()).processes === 1, 'only the root is left')
  })
})

describe('usage().cpuMs', together, () => {
  const BURNT_MS = 300
  for (const how of ['waited', 'orphaned']) {
    test(
      `includes the time of an ended grandchild: ${how}`,
      notUnderWine(WINE_COUNTS_NO_TIME, notOnMacos(NO_TIME_OF_THE_DEAD, options)),
      async (t) => {
        const { child } = await standing(t, program('burns-and-dies'), [how, String(BURNT_MS)], 1)
        const enough = async () => (await child.usage()).cpuMs >= BURNT_MS - ROUNDING_MS
        // The keeper may not have reaped the grandchild yet.
        await until(enough, 'the time is counted')
        const { cpuMs } = await child.usage()
        assert.ok(cpuMs < 20 * BURNT_MS, `${cpuMs} ms`)
      },
    )
  }

  test(
    'grows with the work of the tree, and never shrinks',
    notUnderWine(WINE_COUNTS_NO_TIME, options),
    async (t) => {
      const { spawnOwned } = supervise(freshRegistry())
      const busy = isWindows ? ['yes', []] : ['sh', ['-c', 'while :; do :; done']]
      const child = spawnOwned(...busy, { stdio: 'ignore' })
      t.after(() => child.cancel({ signal: 'SIGKILL' }))
      let before = 0
      await until(async () => {
        const { cpuMs } = await child.usage()
        assert.ok(cpuMs >= before, `${cpuMs} after ${before}`)
        before = cpuMs
        return cpuMs >= 200
      }, 'the tree has used 200 ms')
      await child.cancel({ graceMs: 0 })
    },
  )

  test('does not grow while the tree sleeps', options, async (t) => {
    const { child } = await ofTree(t, treeNamed('half-setsid'))
    const first = await child.usage()
    for (let i = 0; i < 50; i++) await child.usage()
    const { cpuMs } = await child.usage()
    assert.ok(cpuMs - first.cpuMs <= ROUNDING_MS, `${first.cpuMs} → ${cpuMs} ms`)
  })
})

describe('usage().rssBytes', together, () => {
  test('is the memory of the live processes', options, async (t) => {
    const { spawnOwned } = supervise(freshRegistry())
    const code = 'const big = Buffer.alloc(100e6, 1); process.stdout.write("r"); setInterval(() => big, 1e6)'
    const child = spawnOwned(process.execPath, ['-e', code])
    t.after(() => child.cancel({ signal: 'SIGKILL' }))
    await new Promise((resolve) => child.stdout.once('data', resolve))
    const { rssBytes, processes } = await child.usage()
    assert.equal(processes, 1)
    assert.ok(rssBytes > 100e6 && rssBytes < 1e9, `${rssBytes} bytes`)
    await child.cancel()
  })
})

describe('usage() returns zeros', together, () => {
  test('after the end of the run', options, async (t) => {
    const { child, witness } = await ofTree(t, treeNamed('half-setsid'))
    await child.cancel()
    assertGone(witness)
    assert.deepEqual(await child.usage(), nothing)
  })

  test('for a command that could not be started', options, async () => {
    const child = supervise(freshRegistry())
      .spawnOwned('/nonexistent')
      .on('error', () => {})
    assert.deepEqual(await child.usage(), nothing)
    await child.wait()
    assert.deepEqual(await child.usage(), nothing)
  })

  test('or the last counts, and always resolves, if the run ends during the call', options, async (t) => {
    const { child } = await ofTree(t, treeNamed('half-setsid'))
    const calls = [child.usage(), child.usage()]
    const ended = child.cancel({ signal: 'SIGKILL' })
    calls.push(child.usage(), child.usage())
    await ended
    for (const { processes } of await Promise.all(calls)) assert.ok(processes <= 33)
  })
})

test('many calls of usage() resolve in order', options, async (t) => {
  const { child } = await ofTree(t, treeNamed('half-setsid'))
  const answers = await Promise.all(Array.from({ length: 100 }, () => child.usage()))
  assert.deepEqual(new Set(answers.map(({ processes }) => processes)), new Set([33]))
  const times = answers.map(({ cpuMs }) => cpuMs)
  assert.deepEqual(
    times,
    times.toSorted((a, b) => a - b),
  )
})

test("usage() works after the exit of the root with onLeaderExit 'keep'", options, async (t) => {
  const tree = treeNamed('half-setsid')
  const [file] = tree.command('')
  const { child } = await standing(t, file, [], tree.ready, { onLeaderExit: 'keep' })
  child.stdin.end()
  await new Promise((resolve) => child.on('exit', resolve))
  const { processes } = await child.usage()
  assert.equal(processes, tree.ready - 1)
})
