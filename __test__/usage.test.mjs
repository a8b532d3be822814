// usage(): what a whole tree uses now.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertGone, freshRegistry, supervise, until } from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { treeNamed, treeOptions } from './support/hostile-trees.mjs'
import {
  isWindows,
  NO_TIME_OF_THE_DEAD,
  notOnMacos,
  notUnderWine,
  WINE_COUNTS_NO_TIME,
} from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 4 }
const nothing = { processes: 0, cpuMs: 0, rssBytes: 0 }
/** Times are counted in ticks, and rounded down, for user and system each. */
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

describe('processes', together, () => {
  for (const name of ['tree-of-100', 'half-setsid', 'double-fork-daemon', 'cleared-environment']) {
    const tree = treeNamed(name)
    test(`every one of them is counted: ${name}`, treeOptions(tree, options), async (t) => {
      const { child } = await ofTree(t, tree)
      const { processes, rssBytes } = await child.usage()
      assert.equal(processes, tree.ready)
      assert.ok(rssBytes >= processes * 4096, `${rssBytes} bytes`)
    })
  }

  test('those that are gone are not', options, async (t) => {
    const { child } = await standing(t, program('burns-and-dies'), ['orphaned', '1'], 1)
    // A zombie for a moment.
    await until(async () => (await child.usage()).processes === 1, 'only the root is there')
  })
})

describe('time', together, () => {
  const BURNT_MS = 300
  for (const how of ['waited', 'orphaned']) {
    test(
      `includes that of a grandchild that is gone: ${how}`,
      notUnderWine(WINE_COUNTS_NO_TIME, notOnMacos(NO_TIME_OF_THE_DEAD, options)),
      async (t) => {
        const { child } = await standing(t, program('burns-and-dies'), [how, String(BURNT_MS)], 1)
        const enough = async () => (await child.usage()).cpuMs >= BURNT_MS - ROUNDING_MS
        // Its keeper may have to wait for it yet.
        await until(enough, 'it is counted')
        const { cpuMs } = await child.usage()
        assert.ok(cpuMs < 20 * BURNT_MS, `${cpuMs} ms`)
      },
    )
  }

  test(
    'grows with what the tree does, and never shrinks',
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
      }, 'it has used 200 ms')
      await child.cancel({ graceMs: 0 })
    },
  )

  test('of a tree that sleeps does not grow', options, async (t) => {
    const { child } = await ofTree(t, treeNamed('half-setsid'))
    const first = await child.usage()
    for (let i = 0; i < 50; i++) await child.usage()
    const { cpuMs } = await child.usage()
    assert.ok(cpuMs - first.cpuMs <= ROUNDING_MS, `${first.cpuMs} → ${cpuMs} ms`)
  })
})

describe('memory', together, () => {
  test('is that of the living', options, async (t) => {
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

describe('nothing is used', together, () => {
  test('after the end', options, async (t) => {
    const { child, witness } = await ofTree(t, treeNamed('half-setsid'))
    await child.cancel()
    assertGone(witness)
    assert.deepEqual(await child.usage(), nothing)
  })

  test('by a command that could not be started', options, async () => {
    const child = supervise(freshRegistry())
      .spawnOwned('/nonexistent')
      .on('error', () => {})
    assert.deepEqual(await child.usage(), nothing)
    await child.wait()
    assert.deepEqual(await child.usage(), nothing)
  })

  test('when it ends before it can answer, and nobody waits for ever', options, async (t) => {
    const { child } = await ofTree(t, treeNamed('half-setsid'))
    const asked = [child.usage(), child.usage()]
    const ended = child.cancel({ signal: 'SIGKILL' })
    asked.push(child.usage(), child.usage())
    await ended
    for (const { processes } of await Promise.all(asked)) assert.ok(processes <= 33)
  })
})

test('many at once are answered in order', options, async (t) => {
  const { child } = await ofTree(t, treeNamed('half-setsid'))
  const answers = await Promise.all(Array.from({ length: 100 }, () => child.usage()))
  assert.deepEqual(new Set(answers.map(({ processes }) => processes)), new Set([33]))
  const times = answers.map(({ cpuMs }) => cpuMs)
  assert.deepEqual(
    times,
    times.toSorted((a, b) => a - b),
  )
})

test('is told after the root has left, if others may stay', options, async (t) => {
  const tree = treeNamed('half-setsid')
  const [file] = tree.command('')
  const { child } = await standing(t, file, [], tree.ready, { onLeaderExit: 'keep' })
  child.stdin.end()
  await new Promise((resolve) => child.on('exit', resolve))
  const { processes } = await child.usage()
  assert.equal(processes, tree.ready - 1)
})
