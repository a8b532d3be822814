// RunExit.forced: the members that needed SIGKILL.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { isSameProcess } from 'spawn-owned'
import { assertGone, freshRegistry, startBot, supervise } from '../support/bots.mjs'
import { spawnOwnedCli } from '../support/cli.mjs'
import { standing } from '../support/deadlines.mjs'
import { program } from '../support/fixtures.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { crashed } from '../support/orphans.mjs'
import { GRACE_FOR_ALL_MS, NO_SIGNALS, posixOnly } from '../support/system.mjs'
import { openWitness } from '../support/witness.mjs'

const options = { timeout: 120_000 }
const stubborn = [program('ignores-sigterm'), []]
const pidsOf = (list) => list.map(({ pid }) => pid).sort((a, b) => a - b)

/** Asserts that the list has so many processes, each once, and that they are gone. */
function assertForced({ forced, survivors }, count) {
  assert.equal(forced.length, count, JSON.stringify(forced))
  assert.equal(new Set(pidsOf(forced)).size, count)
  for (const { startToken, why } of forced)
    assert.deepEqual([isSameProcess(startToken), why], [false, 'needed SIGKILL'])
  assert.deepEqual(survivors, [])
}

describe('exit.forced', options, () => {
  test('has a member that ignores SIGTERM, and none that dies of it', posixOnly(NO_SIGNALS), async (t) => {
    // In the background, the shell would replace the input.
    const both = 'exec 3<&0; "$0" "$2" <&3 & "$1" "$2" <&3 & wait'
    const script = ['-c', both, program('ignores-sigterm'), program('stays')]
    const run = await standing(t, ['sh', script], { ready: 3 })
    const exit = await run.child.cancel({ graceMs: 3000 })
    assertGone(run.witness)
    // The shell dies of SIGTERM. Then the bot closes the input, at whose end the parent of the two
    // that ignore SIGTERM exits.
    assertForced(exit, 1)
    assert.equal(exit.forced[0].command, 'ignores-sigterm')
  })

  test('is empty if all members exit in the grace period', posixOnly(NO_SIGNALS), async (t) => {
    const run = await standing(t, [program('half-setsid'), []], { ready: 33 })
    const { forced, unlisted } = await run.child.cancel({ graceMs: GRACE_FOR_ALL_MS })
    assert.deepEqual([forced, unlisted], [[], undefined])
  })

  test('is empty if the command exits by itself', async () => {
    const { forced } = await supervise(freshRegistry()).run(process.execPath, ['-e', '0'])
    assert.deepEqual(forced, [])
  })

  test('has every member of a cancel without a grace period', posixOnly(NO_SIGNALS), async (t) => {
    const run = await standing(t, [program('half-setsid'), []], { ready: 33 })
    const exit = await run.child.cancel({ graceMs: 0 })
    assertGone(run.witness)
    assertForced(exit, 33)
  })

  test('has every member of a cancel with SIGKILL, the root too', async (t) => {
    const run = await standing(t, stubborn, { ready: 2 })
    const exit = await run.child.cancel({ signal: 'SIGKILL' })
    assertGone(run.witness)
    assertForced(exit, 2)
    assert.ok(pidsOf(exit.forced).includes(run.child.pid))
  })

  test('has the leftovers that needed it', async (t) => {
    const run = await standing(t, stubborn, { ready: 2, graceMs: 100 })
    run.child.stdin.end()
    const exit = await run.child.wait()
    assertForced(exit, 1)
    assert.deepEqual(pidsOf(exit.forced), pidsOf(exit.leftovers))
  })

  test('counts the processes beyond the limit of the list', posixOnly(NO_SIGNALS), async (t) => {
    const count = 1100
    const stdio = ['pipe', 'ignore', 'ignore']
    const run = await standing(t, [program('crowd'), [`${count}`]], { ready: count + 1, stdio })
    const { forced, unlisted } = await run.child.cancel({ signal: 'SIGKILL' })
    assertGone(run.witness)
    assert.equal(forced.length, 1024)
    assert.deepEqual(unlisted, { leftovers: 0, escaped: 0, forced: count + 1 - 1024, survivors: 0 })
  })

  test('is the same for the owner and for another bot, and in the history', async (t) => {
    const path = freshRegistry()
    const bot = await startBot(t, path)
    const witness = openWitness(t)
    const { runId } = await bot.ask('spawn', stubborn[0], [witness.path], { graceMs: 100 })
    await witness.ready(2)
    const here = supervise(path)
    const { exits } = await here.cancel(runId)
    assertGone(witness)
    assertForced(exits[0], 2)
    assert.deepEqual((await bot.ask('wait', runId)).forced, exits[0].forced)
    const [ended] = await here.history({ runId })
    assert.equal(ended.forced, 2)
    const { stdout } = await spawnOwnedCli(path, ['inspect', runId])
    assert.match(stdout, /killed +2 processes with SIGKILL/)
  })

  test('has what a cancel kills without a keeper', async (t) => {
    const run = await crashed(t, { tree: treeNamed('ignores-sigterm') })
    const { exits } = await run.next.cancel(run.runId, { graceMs: 100 })
    assertGone(run.witness)
    assertForced(exits[0], 2)
  })
})
