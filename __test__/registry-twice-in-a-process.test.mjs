// One process that has the same registry twice without knowing it: by another path, or by another copy of this package, which
// has a memory of its own. Neither throws out, reaps or takes what is the other's. And one process that two bots register.
import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { after, describe, test } from 'node:test'
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
} from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { assertReport, crashed } from './support/orphans.mjs'
import { isWindows, NO_LINKS, posixOnly } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
const together = { timeout: 600_000, concurrency: 2 }

/** Another supervisor of this process on the file at `path`. */
const twice = {
  'through a link to its folder': (path) => {
    const link = join(dirname(dirname(path)), 'link')
    symlinkSync(dirname(path), link)
    return supervise(join(link, basename(path)))
  },
  'through another copy of the package': (path) => copy().createSupervisor({ registryPath: path }),
}

/** As npm installs it when two packages want different versions. */
function copy() {
  const folder = mkdtempSync(join(tmpdir(), 'copy-of-spawn-owned-'))
  copies.push(folder)
  for (const part of ['dist', 'native'])
    cpSync(fileURLToPath(new URL(`../${part}`, import.meta.url)), join(folder, part), {
      recursive: true,
      maxRetries: 10,
    })
  return createRequire(import.meta.url)(join(folder, 'dist', 'index.js'))
}
const copies = []
after(() => {
  // Nobody can remove an addon on Windows that is loaded: the copies stay until the folder for temporary files is emptied.
  if (isWindows) return
  for (const folder of copies) rmSync(folder, { recursive: true, force: true, maxRetries: 10 })
})

for (const [how, again] of Object.entries(twice)) {
  describe(
    `a registry that a process has twice, ${how},`,
    posixOnly(how.includes('link') && NO_LINKS, together),
    () => {
      /** A run that stands. */
      async function start(t, { spawnOwned }, runId, more) {
        const witness = openWitness(t)
        const run = spawnOwned(program('stays'), [witness.path], { runId, stdio: 'ignore', ...more })
        await witness.ready(1)
        t.after(() => run.cancel({ graceMs: 0 }))
        return { run, witness }
      }

      /** Both, each with a run, once the file has followed. */
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

      /** At every moment from now on until the file says so. */
      async function untilFileSays(path, wanted, always) {
        await until(() => {
          const found = inFile(path)
          for (const runId of always) assert.ok(found.includes(runId), `${runId} was thrown out: ${found}`)
          return found.join() === wanted.join()
        }, `the file has ${wanted}`)
      }

      test('has the runs of both, whichever of them writes it', options, async (t) => {
        const { path, one, two, first, second } = await both(t)
        await untilFileSays(path, ['first', 'second'], ['first'])
        // Each writes it once more.
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

      test(
        'has no orphans as long as the process lives: neither reaps, adopts or steals',
        options,
        async (t) => {
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
        },
      )

      test('lets either cancel what is the other’s', options, async (t) => {
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

      test('refuses a run id that the other has', options, async (t) => {
        const { one, two } = await both(t)
        for (const [{ spawnOwned }, runId] of [
          [one, 'second'],
          [two, 'first'],
        ])
          assert.throws(() => spawnOwned('true', { runId }), { code: /^ERR_OWNED_/ })
      })

      test('refuses a process that the other has registered', options, async (t) => {
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

      test('is reaped by one of both when both want to', options, async (t) => {
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

describe('a process that another bot has registered', together, () => {
  // The next bot has looked at the registry before the first has entered anything, or looks at it for the first time.
  const since = {
    'which was there first': async (_, next) =>
      void (await next.spawnOwned('true', { stdio: 'ignore' }).wait()),
    'which is new': () => {},
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

    test(`and that is dead is this one’s, ${which}, and is not reaped by it`, options, async (t) => {
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
      await until(() => inFile()[0]?.[0] === 'mine', 'the file says so')
      assert.deepEqual(inFile(), [['mine', process.pid]])
      assertReport(await next.reapOrphans(), {})
      // Nor by others, who have it from the file.
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

    test(`and that lives is refused to this one, ${which}`, options, async (t) => {
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
