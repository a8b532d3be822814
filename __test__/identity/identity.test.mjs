// Start tokens as JavaScript sees them, and the operations that use them on kernels without pidfds
// (SPAWN_OWNED_FORCE_FALLBACK, for tests).
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, readlinkSync } from 'node:fs'
import { captureStartToken, isSameProcess } from 'spawn-owned'
import {
  altered,
  assertAlive,
  assertGone,
  bystander,
  fileHas,
  freshRegistry,
  neverWaitedFor,
  past,
  startBot,
  statOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { inNamespace, namespace } from '../support/namespace.mjs'
import { assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import { isWindows, linuxOnly, NO_PIDFDS, NO_PROC, NO_ZOMBIES, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }

/** Field 22 of /proc/PID/stat, the start time, parsed here independently of the addon. */
function startOf(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
}

describe('a start token', together, () => {
  test('consists of PID, start time, PID namespace and boot id', linuxOnly(NO_PROC, options), () => {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    const [, ns] = readlinkSync('/proc/self/ns/pid').match(/\[(\d+)\]/)
    const expected = [process.pid, startOf(process.pid), ns, boot].join(':')
    assert.equal(captureStartToken(process.pid), expected)
    assert.equal(isSameProcess(expected), true)
  })

  test('stays the same as long as the process lives', options, async (t) => {
    const { pid, child } = await bystander(t)
    const token = captureStartToken(pid)
    assert.equal(captureStartToken(pid), token)
    if (!isWindows) {
      child.kill('SIGSTOP')
      await until(() => statOf(pid).state === 'T', 'the process has stopped')
    }
    assert.deepEqual([captureStartToken(pid), isSameProcess(token)], [token, true])
    child.kill('SIGKILL')
    await once(child, 'exit')
    assert.deepEqual([captureStartToken(pid), isSameProcess(token)], [null, false])
  })

  test(
    'has the right start time if the process name looks like fields of stat',
    linuxOnly(NO_PROC, options),
    async (t) => {
      const { pid } = await bystander(t, { name: 'confusing-comm', processes: 3 })
      assert.match(readFileSync(`/proc/${pid}/comm`, 'utf8'), /\) S 1 \(/)
      assert.equal(captureStartToken(pid).split(':')[1], startOf(pid))
    },
  )

  test('does not exist for a zombie', posixOnly(NO_ZOMBIES, options), async (t) => {
    const pid = await neverWaitedFor(t, 'sleep', '60')
    const token = captureStartToken(pid)
    assert.equal(isSameProcess(token), true)
    process.kill(pid, 'SIGKILL')
    await until(() => statOf(pid).state === 'Z', 'the process is a zombie')
    assert.deepEqual([captureStartToken(pid), isSameProcess(token)], [null, false])
  })

  test('of a process whose main thread has exited is valid', linuxOnly(NO_PROC, options), async (t) => {
    const { pid } = await bystander(t, { name: 'main-thread-exited', processes: 3 })
    const children = execFileSync('cat', [`/proc/${pid}/task/${pid}/children`], { encoding: 'utf8' })
    for (const child of children.trim().split(' ').map(Number)) {
      await until(() => statOf(child).state === 'Z', 'the main thread has exited')
      const token = captureStartToken(child)
      assert.ok(token)
      assert.equal(isSameProcess(token), true)
    }
  })

  test('differs for another process with the same PID, another boot or another namespace', options, () => {
    const mine = captureStartToken(process.pid)
    assert.equal(isSameProcess(past(mine)), false)
    // PID 1 and not our parent, which can have started in the same tick of the clock.
    assert.equal(isSameProcess(altered(mine, { pid: 1 })), false)
    assert.equal(isSameProcess(altered(mine, { ns: 4 })), false)
    assert.equal(isSameProcess(altered(mine, { boot: '00000000-0000-4000-8000-000000000000' })), false)
  })

  test('from another PID namespace does not match here, nor ours there', inNamespace, async (t) => {
    const bot = await startBot(t, freshRegistry(), { within: namespace })
    const token = await bot.ask('token', 1)
    assert.match(token, /^1:/)
    assert.equal(await bot.ask('isSame', token), true)
    assert.equal(isSameProcess(token), false)
    assert.equal(await bot.ask('isSame', captureStartToken(1)), false)
  })

  test('does not exist for a PID without a process', options, async () => {
    const ended = spawn('true')
    await once(ended, 'exit')
    for (const pid of [ended.pid, 2 ** 31 - 1]) assert.equal(captureStartToken(pid), null)
  })

  for (const nonsense of [undefined, null, '1', {}, Number.NaN, 1.5, 0, -1, 2 ** 31, 2 ** 53]) {
    test(`of ${String(nonsense)} is null or an error`, options, () => {
      let token = null
      try {
        token = captureStartToken(nonsense)
      } catch (error) {
        assert.match(error.code, /^ERR_(INVALID_ARG_TYPE|OUT_OF_RANGE)$/)
      }
      assert.equal(token, null)
    })
  }

  const mine = captureStartToken(process.pid)
  const malformed = {
    'an empty string': '',
    'only colons': ':::',
    'only a PID': String(process.pid),
    'the first three fields': mine.split(':').slice(0, 3).join(':'),
    'a character after it': `${mine}x`,
    'a space before it': ` ${mine}`,
    'a sign before it': `+${mine}`,
    'a zero before it': `0${mine}`,
    'capital letters': mine.toUpperCase(),
  }
  for (const [what, text] of Object.entries(malformed)) {
    test(`is not accepted if it is malformed: ${what}`, options, () => {
      assert.equal(isSameProcess(text), false)
    })
  }
  for (const nonsense of [undefined, null, 7, {}]) {
    test(`is not ${String(nonsense)}`, options, () => {
      let same = false
      try {
        same = isSameProcess(nonsense)
      } catch (error) {
        assert.equal(error.code, 'ERR_INVALID_ARG_TYPE')
      }
      assert.equal(same, false)
    })
  }
})

// Bots without pidfds, or without group signals through pidfds. Their keepers inherit the
// environment.
for (const list of ['pidfd', 'group', 'pidfd,group']) {
  describe(`without ${list}`, linuxOnly(NO_PIDFDS, together), () => {
    const env = { SPAWN_OWNED_FORCE_FALLBACK: list }

    async function owned(t, { tree = treeNamed('half-setsid'), ...more } = {}) {
      const path = freshRegistry()
      const bot = await startBot(t, path, { env })
      const witness = openWitness(t)
      const [command, args] = tree.command(witness.path)
      const { runId, pid } = await bot.ask('spawn', command, args, { graceMs: 300, ...more })
      await witness.ready(tree.ready)
      const next = await startBot(t, path, { env })
      return { bot, next, path, pid, runId, witness }
    }

    test('a token matches its process until the process dies', options, async (t) => {
      const { bot, pid, runId, witness } = await owned(t)
      const token = await bot.ask('token', pid)
      assert.equal(token, captureStartToken(pid))
      assert.equal(await bot.ask('isSame', token), true)
      await bot.ask('cancelRun', runId)
      assertGone(witness)
      assert.equal(await bot.ask('isSame', token), false)
    })

    test('the owner cancels its run', options, async (t) => {
      const { bot, runId, witness } = await owned(t, { tree: treeNamed('ignores-sigterm') })
      const { reason, survivors } = await bot.ask('cancelRun', runId)
      assertGone(witness)
      assert.deepEqual([reason, survivors], ['manual-cancel', []])
    })

    test('another bot cancels the run', options, async (t) => {
      const { bot, next, runId, witness } = await owned(t, { tree: treeNamed('cleared-environment') })
      const { outcome } = await next.ask('cancel', runId)
      assertGone(witness)
      assert.equal(outcome, 'cancelled')
      assert.equal((await bot.ask('wait', runId)).reason, 'manual-cancel')
    })

    for (const name of ['half-setsid', 'ignores-sigterm', 'stopped']) {
      test(`an orphan without a keeper is reaped: ${name}`, options, async (t) => {
        const other = await bystander(t)
        const { bot, next, path, pid, witness } = await owned(t, { tree: treeNamed(name) })
        await bot.killWithHelpers()
        const { killed, failed } = await next.ask('reap')
        assertGone(witness)
        assert.deepEqual([killed, failed], [[pid], []])
        assertAlive(other.witness)
        await fileHas(path, 0)
      })
    }

    test('an orphan with a keeper is reaped', options, async (t) => {
      const tree = treeNamed('cleared-environment')
      const { bot, next, pid, witness } = await owned(t, { tree, onOwnerExit: 'keep' })
      await bot.kill()
      assertAlive(witness)
      assert.deepEqual((await next.ask('reap')).killed, [pid])
      assertGone(witness)
    })

    test(
      'the bot notices the end of a registered process, and cancels one with its group',
      options,
      async (t) => {
        const path = freshRegistry()
        const bot = await startBot(t, path, { env })
        for (const end of [(pid) => bot.ask('cancel', { pid }), (pid) => process.kill(-pid, 'SIGKILL')]) {
          const witness = openWitness(t)
          const pid = await bot.ask('child', program('ignores-sigterm'), [witness.path], { detached: true })
          await witness.ready(2)
          await bot.ask('register', { pid, graceMs: 100 })
          await end(pid)
          await witness.gone(20_000)
          await until(async () => (await bot.ask('list')).length === 0, 'the entry is removed')
        }
      },
    )

    test('a PID that another process reuses is left alone', options, async (t) => {
      const { bot, pid, witness } = await owned(t)
      const [record] = await bot.ask('list')
      await bot.killWithHelpers()
      const otherProcess = await bystander(t)
      const startToken = past(captureStartToken(otherProcess.pid))
      const entry = { ...record, pid: otherProcess.pid, pgid: otherProcess.pid, startToken, runId: 'reused' }
      const next = await startBot(t, freshRegistry([{ ...entry, keeper: undefined }]), { env })
      const { killed, skipped } = await next.ask('reap')
      assert.deepEqual([killed, skipped.map((it) => it.pid)], [[], [otherProcess.pid]])
      assertAlive(otherProcess.witness)
      assertAlive(witness)
      const here = supervise(freshRegistry([record]))
      assert.deepEqual((await here.reapOrphans()).killed, [pid])
    })
  })
}
