// The command line for orphans: kill --orphans and watch.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { describe, test } from 'node:test'
import { assertAlive, assertGone, freshRegistry, startBot } from '../support/bots.mjs'
import { cli, spawnOwnedCli as so } from '../support/cli.mjs'
import { program } from '../support/fixtures.mjs'
import { NO_SIGNALS, posixOnly } from '../support/system.mjs'
import { openWitness } from '../support/witness.mjs'

const options = { timeout: 60_000 }

/** A kept run whose bot is dead. */
async function orphan(t, registryPath, runId = 'left') {
  const witness = openWitness(t)
  const bot = await startBot(t, registryPath)
  await bot.ask('spawn', program('stays'), [witness.path], { onOwnerExit: 'keep', runId })
  await witness.ready(1)
  await bot.kill()
  return witness
}

describe('kill', options, () => {
  test('refuses to run without --orphans', async () => {
    const { code, stderr } = await so(freshRegistry(), ['kill'])
    assert.equal(code, 2)
    assert.match(stderr, /RUN or --orphans is required/)
  })

  test('--dry-run shows a table and a summary, and ends nothing', async (t) => {
    const registryPath = freshRegistry()
    const witness = await orphan(t, registryPath)
    const { code, lines } = await so(registryPath, ['kill', '--orphans', '--dry-run'])
    assert.equal(code, 0)
    const [header, row, empty, summary] = lines()
    assert.match(header, /^ *PID +RUN +AGE +STATUS +OUTCOME +REASON +COMMAND$/)
    assert.match(row, /left +\d+s +confirmed +would end/)
    assert.equal(empty, '')
    assert.match(summary, /^1 would be ended, 0 already gone, 0 skipped, 0 failed\./)
    assertAlive(witness)
  })

  test('--orphans prints why each run is an orphan, and ends it', async (t) => {
    const registryPath = freshRegistry()
    const witness = await orphan(t, registryPath)
    const { code, stdout, stderr } = await so(registryPath, ['kill', '--orphans'])
    assert.equal(code, 0)
    assert.match(stderr, /^ending left \(pid \d+\): /)
    assert.match(stdout, /confirmed +ended/)
    assert.match(stdout, /^1 ended, /m)
    assertGone(witness)
  })

  test('--older-than leaves younger orphans alive', async (t) => {
    const registryPath = freshRegistry()
    const witness = await orphan(t, registryPath)
    const { json } = await so(registryPath, ['kill', '--orphans', '--older-than', '1h', '--json'])
    assert.deepEqual(json().killed, [])
    assertAlive(witness)
    await so(registryPath, ['kill', '--orphans'])
    assertGone(witness)
  })

  test('only reports suspects, and ends them with --force', posixOnly(NO_SIGNALS), async (t) => {
    const registryPath = freshRegistry()
    const witness = openWitness(t)
    const folder = registryPath.slice(0, registryPath.indexOf('/data/'))
    const suspect = spawn(program('stays'), [witness.path], { cwd: folder, stdio: 'ignore' })
    const exited = once(suspect, 'exit')
    await witness.ready(1)
    const args = ['kill', '--orphans', '--pattern', 'stays', '--project', folder]
    const reported = await so(registryPath, args)
    assert.match(reported.stdout, new RegExp(`${suspect.pid} .*suspected +reported`))
    assert.match(reported.stdout, /1 suspect; --force terminates it\./)
    assertAlive(witness)
    // A dry run predicts the outcome of the same command without --dry-run.
    const foreseen = await so(registryPath, [...args, '--force', '--dry-run'])
    assert.match(foreseen.stdout, new RegExp(`${suspect.pid} .*suspected +would end`))
    assert.match(foreseen.stdout, /1 of 1 suspect would be ended\./)
    const young = [...args, '--force', '--older-than', '1h']
    for (const dryRun of [['--dry-run'], []]) {
      const spared = await so(registryPath, [...young, ...dryRun])
      assert.match(spared.stdout, new RegExp(`${suspect.pid} .*suspected +skipped`))
      assert.match(spared.stdout, dryRun.length > 0 ? /0 of 1 suspect would be/ : /0 of 1 suspect ended/)
    }
    const predicted = await so(registryPath, [...args, '--force', '--dry-run', '--json'])
    assert.deepEqual(
      predicted.json().suspected.map(({ pid, outcome }) => ({ pid, outcome })),
      [{ pid: suspect.pid, outcome: 'planned' }],
    )
    assertAlive(witness)
    const forced = await so(registryPath, [...args, '--force', '--json'])
    assert.deepEqual(
      forced.json().suspected.map(({ pid, outcome }) => ({ pid, outcome })),
      [{ pid: suspect.pid, outcome: 'ended' }],
    )
    await exited
    assertGone(witness)
  })
})

test(
  'watch reports the orphan of a bot that dies, ends it, and exits at Ctrl-C',
  posixOnly(NO_SIGNALS, options),
  async (t) => {
    const registryPath = freshRegistry()
    const args = [cli, 'watch', '--interval', '1h', '--auto-kill', '--json', '--registry', registryPath]
    const watch = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
    t.after(() => watch.kill('SIGKILL'))
    const lines = createInterface({ input: watch.stdout })[Symbol.asyncIterator]()
    const next = async () => JSON.parse((await lines.next()).value)
    const witness = await orphan(t, registryPath)
    assert.equal((await next()).type, 'orphan:detected')
    assert.equal((await next()).type, 'orphan:killed')
    assertGone(witness)
    watch.kill('SIGINT')
    assert.deepEqual(await once(watch, 'exit'), [0, null])
  },
)
