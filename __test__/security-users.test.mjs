// What another user of the same machine can do to a bot's runs, and have a bot do to others: nothing.
import assert from 'node:assert/strict'
import { execFile, execFileSync, spawn } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { captureStartToken, createSupervisor, isSameProcess } from 'spawn-owned'
import { NOBODY, SOMEBODY, startUser, withoutUsers } from './support/another-user.mjs'
import {
  assertAlive,
  assertGone,
  bystander,
  freshRegistry,
  keeperOf,
  startBot,
  statOf,
  supervise,
  until,
} from './support/bots.mjs'
import { program, script } from './support/fixtures.mjs'
import { treeNamed } from './support/hostile-trees.mjs'
import { crashed, owned } from './support/orphans.mjs'
import { NO_KEEPER, posixOnly } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const limit = { timeout: 120_000 }
const options = { ...limit, skip: withoutUsers }
const together = { timeout: 600_000, concurrency: 2, skip: withoutUsers }

/** What a visitor says to have a run cancelled, at once, in hexadecimal digits: a frame of the keeper's protocol. */
function cancelFrame() {
  const said = execFileSync(script('../../native/spawn-owned-keeper'), ['--version'], { encoding: 'utf8' })
  const version = Number(/protocol (\d+)/.exec(said)[1])
  const reason = Buffer.from('manual-cancel')
  const payload = Buffer.concat([Buffer.from([6, 2 * 15, 0, reason.length]), reason])
  const header = Buffer.from([0x53, 0x4f, version, 0, payload.length, 0, 0, 0])
  return Buffer.concat([header, payload]).toString('hex')
}

/** How many bytes that user hears who says this at an address. */
async function visit(address, uid, frame) {
  const { stdout } = await promisify(execFile)(program('visits'), [address, String(uid), frame])
  return Number(stdout)
}

describe('another user', together, () => {
  test('is not let in by a keeper, and hears nothing', options, async (t) => {
    const { record, witness, bot, runId } = await owned(t)
    const { address } = record.keeper
    const frame = cancelFrame()
    // More than are turned away in one turn.
    const heard = await Promise.all(Array.from({ length: 20 }, () => visit(address, NOBODY, frame)))
    assert.deepEqual(new Set(heard), new Set([0]))
    assertAlive(witness)
    assert.equal(await bot.ask('state', runId), 'running')
    // The same words from the bot's own user are a cancel: it was not for the words that nothing happened.
    assert.ok((await visit(address, process.getuid(), frame)) > 0)
    await witness.gone(30_000)
    assert.equal((await bot.ask('wait', runId)).reason, 'manual-cancel')
  })

  test('is not counted as part of a run for carrying its cookie', options, async (t) => {
    // A bot without rights, as bots should be: root could read anybody's environment.
    const path = freshRegistry()
    for (const it of [dirname(dirname(path)), dirname(path)]) {
      mkdirSync(it, { recursive: true })
      chownSync(it, NOBODY, NOBODY)
      chmodSync(it, 0o755)
    }
    const bot = await startBot(t, path)
    await bot.ask('become', NOBODY)
    const { pid, runId } = await bot.ask('spawn', 'sleep', ['600'])
    const stranger = await startUser(t, SOMEBODY)
    const forger = await stranger.ask('child', '/bin/sleep', ['600'], { SPAWN_OWNED_RUN: runId })
    const [run, forged] = [captureStartToken(pid), captureStartToken(forger)]
    t.after(() => isSameProcess(forged) && process.kill(forger, 'SIGKILL'))
    await bot.killWithHelpers()
    assert.equal(isSameProcess(run), true)

    const next = await startBot(t, path)
    await next.ask('become', NOBODY)
    const { killed } = await next.ask('reap', { graceMs: 500 })
    assert.deepEqual(killed, [pid])
    assert.equal(isSameProcess(run), false)
    assert.equal(isSameProcess(forged), true, 'it is somebody else’s')
  })

  test(
    'who can write in the folder names somebody in a file of its own: it is refused',
    options,
    async (t) => {
      const { record } = await crashed(t)
      const stranger = await bystander(t)
      const path = freshRegistry([])
      chmodSync(dirname(dirname(path)), 0o755)
      chmodSync(dirname(path), 0o777)
      const user = await startUser(t)
      await user.ask('rename', path, `${path}.moved`)
      const startToken = captureStartToken(stranger.pid)
      const entry = {
        ...record,
        pid: stranger.pid,
        startToken,
        pgid: stranger.pid,
        keeper: undefined,
        containment: 'group',
      }
      await user.ask('write', path, JSON.stringify({ version: 1, entries: [entry] }))
      const next = supervise(path)
      const refused = { code: 'ERR_OWNED_REGISTRY_FOREIGN' }
      await assert.rejects(next.reapOrphans(), refused)
      await assert.rejects(next.cancel(entry.runId), refused)
      await assert.rejects(next.cancel({ pid: stranger.pid }), refused)
      assert.throws(() => next.spawnOwned('true'), refused)
      assertAlive(stranger.witness)

      // And by the other door: lines that are to be added to what the bot has written.
      await user.ask('rename', path, `${path}.theirs`)
      writeFileSync(path, JSON.stringify({ version: 1, entries: [] }), { mode: 0o600 })
      const json = JSON.stringify({ intent: { entry } })
      await user.ask('write', `${path}.journal`, `\n${Buffer.byteLength(json)} ${json}\n`)
      await assert.rejects(supervise(path).reapOrphans(), refused)
      assertAlive(stranger.witness)
    },
  )

  test('cannot read what runs', options, async (t) => {
    const { path } = await owned(t)
    for (const it of [dirname(dirname(path)), dirname(path)]) chmodSync(it, 0o755)
    const user = await startUser(t)
    await assert.rejects(user.ask('read', path), { code: 'EACCES' })
  })
})

test(
  'a command that runs as another user can do nothing to its keeper, zygote and bot',
  options,
  async (t) => {
    const supervisor = createSupervisor({ registryPath: freshRegistry() })
    const line =
      'for pid in "$@"; do for it in STOP TERM KILL; do kill -$it $pid 2>/dev/null && echo $it $pid; done; done; echo done; read line'
    const run = supervisor.spawnOwned(
      '/bin/sh',
      ['-c', `keeper=$PPID; set -- $keeper ${process.pid}; ${line}`],
      {
        cwd: '/',
        uid: NOBODY,
        gid: NOBODY,
        stdio: ['pipe', 'pipe', 'inherit'],
        graceMs: 500,
      },
    )
    t.after(() => run.cancel({ graceMs: 0 }))
    let said = ''
    run.stdout.setEncoding('utf8').on('data', (text) => {
      said += text
    })
    await until(() => said.endsWith('done\n'), 'it has tried')
    assert.equal(said, 'done\n')
    const [record] = supervisor.list()
    assert.equal(statOf(run.pid).parent, keeperOf(record))
    const { reason, survivors } = await run.cancel()
    assert.deepEqual([reason, survivors], ['manual-cancel', []])
  },
)

describe('the same user', posixOnly(NO_KEEPER, { timeout: 600_000, concurrency: 2 }), () => {
  /** A process that says that it is of the run. */
  async function forged(t, runId) {
    const witness = openWitness(t)
    const env = { SPAWN_OWNED_RUN: `x:${runId}` }
    spawn(program('stays'), [witness.path], { env, stdio: 'ignore', detached: true })
    await witness.ready(1)
    return witness
  }

  test(
    'can have its own process ended by saying that it is of a run that has lost its keeper',
    limit,
    async (t) => {
      const { next, runId, witness } = await crashed(t, { tree: treeNamed('half-setsid') })
      const volunteer = await forged(t, runId)
      await next.reapOrphans()
      assertGone(witness)
      assertGone(volunteer)
    },
  )

  test('but not by a keeper, which knows its tree without asking', limit, async (t) => {
    const { next, runId, witness } = await owned(t)
    const volunteer = await forged(t, runId)
    await next.cancel(runId)
    assertGone(witness)
    assertAlive(volunteer)
  })
})
