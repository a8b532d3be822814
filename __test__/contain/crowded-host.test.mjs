// The cost of a bot does not depend on the number of processes on the host. The tests use the
// kernel's count of the reads by this process (`syscr` in /proc/self/io): a scan of all processes
// takes at least one read for each.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { freshRegistry, supervise } from '../support/bots.mjs'
import { assert, openWitness, program } from '../support/prelude.mjs'
import { linuxTests } from '../support/system.mjs'

const { describe, test } = linuxTests('counts reads of /proc')

const CROWD = 500
/** How long the test observes an idle bot. The bot first checks a group after 0.1 s and 0.5 s. */
const IDLE_MS = 1000
const options = { timeout: 60_000 }

const reads = () => Number(/^syscr: (\d+)$/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1])

/** Reads during `work`, without the reads of the count itself. */
async function readsOf(work) {
  const own = reads()
  const before = reads()
  await work()
  return reads() - before - (before - own)
}

async function crowd(t) {
  const host = spawn(program('idle-processes'), [String(CROWD)], { stdio: ['pipe', 'pipe', 'inherit'] })
  t.after(() => host.stdin.end())
  await once(createInterface({ input: host.stdout }), 'line')
}

async function children(t, count) {
  const witness = openWitness(t)
  const started = Array.from({ length: count }, () =>
    spawn(program('stays'), [witness.path], { stdio: 'ignore', detached: true }),
  )
  t.after(() => {
    for (const child of started) child.kill('SIGKILL')
  })
  await witness.ready(count)
  return started
}

describe('on a host with many processes', { timeout: 120_000 }, () => {
  test('a bot follows registered processes without a scan of the others', options, async (t) => {
    const here = supervise(freshRegistry())
    const followed = await children(t, 10)
    const [other] = await children(t, 1)
    const idle = async () => {
      for (let i = 0; i < 50; i++) {
        const { runId } = here.registerProcess({ pid: other.pid })
        assert.equal(here.unregisterProcess(runId), true)
      }
      for (const { pid } of followed) here.registerProcess({ pid })
      const counted = await readsOf(() => delay(IDLE_MS))
      for (const child of followed.slice(1)) assert.equal(here.unregisterProcess(child), true)
      return counted
    }
    const alone = await idle()
    assert.equal(here.unregisterProcess(followed[0]), true)
    await crowd(t)
    const beside = await idle()
    // On a busy machine there is one check more or less. A scan of all processes takes several
    // reads for each.
    const most = alone + 2 * CROWD
    assert.ok(beside < most, `${beside} reads while idle beside ${CROWD} processes, ${alone} without them`)
    const ended = await readsOf(() => here.cancel({ pid: followed[0].pid }, { graceMs: 1000 }))
    assert.ok(ended < CROWD, `${ended} reads to cancel one process`)
    await here.shutdown({ graceMs: 1000 })
  })

  test('a reaper does not scan all processes if it does not need to', options, async (t) => {
    const path = freshRegistry()
    const here = supervise(path)
    const run = here.spawnOwned('cat', [], { stdio: ['pipe', 'ignore', 'ignore'] })
    const [child] = await children(t, 1)
    here.registerProcess({ pid: child.pid })
    await crowd(t)
    const next = supervise(path)
    for (const [what, work] of Object.entries({
      reapOrphans: () => next.reapOrphans(),
      survey: () => next.survey(),
      list: async () => next.list(),
    })) {
      const counted = await readsOf(work)
      assert.ok(counted < CROWD, `${what} makes ${counted} reads beside ${CROWD} processes`)
    }
    const [{ members }] = (await here.survey()).filter(({ record }) => record.runId === run.runId)
    assert.deepEqual(
      members.map(({ pid }) => pid),
      [run.pid],
    )
    await here.shutdown({ graceMs: 1000 })
  })
})
