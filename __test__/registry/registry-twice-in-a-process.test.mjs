// A process that has the same registry twice without knowing it: by another path, or by another
// copy of this package with its own memory. Neither removes, reaps or adopts the entries of the
// other. Also: one process that two bots register.
import { cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  assertAlive,
  assertGone,
  bystander,
  entriesOf,
  fileHas,
  freshRegistry,
  startBot,
  supervise,
  until,
} from '../support/bots.mjs'
import { assertReport, crashed } from '../support/orphans.mjs'
import { after, assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import { isWindows, NO_LINKS, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 2 }

/** Creates another supervisor of this process on the file at `path`. */
const twice = {
  'through a link to its folder': (path) => {
    const link = join(dirname(dirname(path)), 'link')
    symlinkSync(dirname(path), link)
    return supervise(join(link, basename(path)))
  },
  'through another copy of the package': (path) => copy().createSupervisor({ registryPath: path }),
}

/** Copies the package as npm installs it when two packages need different versions. */
function copy() {
  const folder = mkdtempSync(join(tmpdir(), 'copy-of-spawn-owned-'))
  copies.push(folder)
  for (const part of ['dist', 'native'])
    cpSync(fileURLToPath(new URL(`../../${part}`, import.meta.url)), join(folder, part), {
      recursive: true,
      maxRetries: 10,
    })
  return createRequire(import.meta.url)(join(folder, 'dist', 'index.js'))
}
const copies = []
after(() => {
  // On Windows a loaded addon cannot be removed: the copies stay until the temporary folder is
  // emptied.
  if (isWindows) return
  for (const folder of copies) rmSync(folder, { recursive: true, force: true, maxRetries: 10 })
})

for (const [how, again] of Object.entries(twice)) {
  describe(
    `a registry that a process opens twice, ${how},`,
    posixOnly(how.includes('link') && NO_LINKS, together),
    () => {
      /** Starts a run and waits until it is ready. */
      async function start(t, { spawnOwned }, runId, more) {
        const witness = openWitness(t)
        const run = spawnOwned(program('stays'), [witness.path], { runId, stdio: 'ignore', ...more })
        await witness.ready(1)
        t.after(() => run.cancel({ graceMs: 0 }))
        return { run, witness }
      }

      /** Two supervisors with one run each, after the file has the first run. */
      async function both(t) {
        const path = freshRegistry()
        const one = supervise(path)
        const first = await start(t, one, 'first', { onOwnerExit: 'keep' })
        await fileHas(path, 1)
        const two = again(path)
        const second = await start(t, two, 'second')
        return { path, one, two, first, second }
      }
      const ids = (records) => records.map(({ runId }) => runId).toSorted()
      const inFile = (path) => ids(entriesOf(path))

      /**
       * Waits until the file has exactly the runs `wanted`. Until then it always contains the runs
       * `always`.
       */
      async function untilFileSays(path, wanted, always) {
        await until(() => {
          const found = inFile(path)
          for (const runId of always) assert.ok(found.includes(runId), `${runId} was removed: ${found}`)
          return found.join() === wanted.join()
        }, `the file has ${wanted}`)
      }

      test('contains the runs of both, whichever of them writes it', options, async (t) => {
        const { path, one, two, first, second } = await both(t)
        await untilFileSays(path, ['first', 'second'], ['first'])
        // Each of them writes the file once more.
        for (const [supervisor, runId] of [
          [two, 'third'],
          [one, 'fourth'],
        ]) {
          const { run } = await start(t, supervisor, runId)
          await untilFileSays(path, ['first', 'second', runId].toSorted(), ['first', 'second'])
          await run.cancel()
          await untilFileSays(path, ['first', 'second'], ['first', 'second'])
        }
        const other = await startBot(t, path)
        for (const list of [one.list(), two.list(), await other.ask('list')])
          assert.deepEqual(ids(list), ['first', 'second'])
        await first.run.cancel()
        await untilFileSays(path, ['second'], ['second'])
        await second.run.cancel()
        await untilFileSays(path, [], [])
      })

      test('has no orphans while the process lives: neither reaps, adopts or steals', options, async (t) => {
        const { one, two, first, second } = await both(t)
        for (const { reapOrphans } of [one, two]) {
          assertReport(await reapOrphans(), {})
          assertReport(await reapOrphans({ policy: 'adopt' }), {})
        }
        for (const [{ adopt }, runId] of [
          [one, 'second'],
          [two, 'first'],
        ])
          await assert.rejects(adopt(runId), { code: 'ERR_OWNED_ALREADY_OWNED' })
        for (const { run, witness } of [first, second]) {
          assertAlive(witness)
          assert.equal(run.state, 'running')
        }
      })

      test('lets each cancel the runs of the other', options, async (t) => {
        const { path, one, two, first, second } = await both(t)
        for (const [{ cancel }, runId, { run, witness }] of [
          [one, 'second', second],
          [two, 'first', first],
        ]) {
          const { outcome, exits } = await cancel(runId)
          assertGone(witness)
          assert.deepEqual([outcome, exits[0].reason], ['cancelled', 'manual-cancel'])
          assert.equal((await run.wait()).reason, 'manual-cancel')
        }
        await untilFileSays(path, [], [])
      })

      test('refuses a run id of the other', options, async (t) => {
        const { one, two } = await both(t)
        for (const [{ spawnOwned }, runId] of [
          [one, 'second'],
          [two, 'first'],
        ])
          assert.throws(() => spawnOwned('true', { runId }), { code: /^ERR_OWNED_/ })
      })

      test('refuses a process that the other registered', options, async (t) => {
        const { path, one, two } = await both(t)
        const { pid } = await bystander(t)
        one.registerProcess({ pid, runId: 'registered' })
        assert.throws(() => two.registerProcess({ pid }), { code: 'ERR_OWNED_ALREADY_REGISTERED' })
        await untilFileSays(path, ['first', 'registered', 'second'], ['first'])
        assert.equal(
          entriesOf(path).find(({ runId }) => runId === 'registered').ownerInstanceId,
          one.instanceId,
        )
      })

      test('is reaped only once when both reap', options, async (t) => {
        const { path, pid, witness, next } = await crashed(t)
        const reports = await Promise.all([next.reapOrphans(), again(path).reapOrphans()])
        assertGone(witness)
        assert.deepEqual(
          reports.flatMap(({ killed }) => killed),
          [pid],
        )
        await untilFileSays(path, [], [])
      })
    },
  )
}

describe('a process that another bot registered', together, () => {
  // The second bot has read the registry before the first one writes an entry, or reads it for the
  // first time afterwards.
  const since = {
    'which read the registry before': async (_, next) =>
      void (await next.spawnOwned('true', { stdio: 'ignore' }).wait()),
    'which reads it for the first time': () => {},
  }
  for (const [which, prepare] of Object.entries(since)) {
    async function registered(t) {
      const path = freshRegistry()
      const next = supervise(path)
      await prepare(t, next)
      const bot = await startBot(t, path)
      const it = await bystander(t)
      await bot.ask('register', { pid: it.pid, runId: 'daemon', graceMs: 500 })
      return { ...it, bot, next, path }
    }

    test(`that is dead now belongs to this bot, ${which}, and is not reaped by it`, options, async (t) => {
      const { bot, next, path, pid, witness } = await registered(t)
      await bot.kill()
      const record = next.registerProcess({ pid, runId: 'mine' })
      assert.deepEqual(
        [record.runId, record.botPid, record.ownerInstanceId],
        ['mine', process.pid, next.instanceId],
      )
      assertReport(await next.reapOrphans(), {})
      assertAlive(witness)
      const inFile = () => entriesOf(path).map(({ runId, botPid }) => [runId, botPid])
      await until(() => inFile()[0]?.[0] === 'mine', 'the file names this bot')
      assert.deepEqual(inFile(), [['mine', process.pid]])
      assertReport(await next.reapOrphans(), {})
      // Other bots, which read the file, do not reap it either.
      assertReport(await (await startBot(t, path)).ask('reap'), {})
      assertAlive(witness)
      assert.deepEqual(
        next.events.filter(({ type }) => type === 'registry' || type === 'lease'),
        [],
      )
      assert.equal((await next.cancel('mine')).outcome, 'cancelled')
      assertGone(witness)
      await fileHas(path, 0)
    })

    test(`that is alive is refused to this bot, ${which}`, options, async (t) => {
      const { bot, next, pid, witness } = await registered(t)
      assert.throws(() => next.registerProcess({ pid, runId: 'mine' }), {
        code: 'ERR_OWNED_ALREADY_REGISTERED',
      })
      const owners = next.list().map(({ runId, botPid }) => [runId, botPid])
      assert.deepEqual(owners, [['daemon', bot.pid]])
      assertAlive(witness)
    })
  }
})
