// Another user of the same machine can neither affect a bot's runs nor make a bot signal other
// processes.
import { execFile, execFileSync, spawn } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import { captureStartToken, createSupervisor, isSameProcess } from 'spawn-owned'
import { registryOf, startUser, USER_A, USER_B, withoutUsers } from '../support/another-user.mjs'
import {
  assertAlive,
  assertGone,
  bystander,
  fileHas,
  freshRegistry,
  keeperOf,
  startBot,
  statOf,
  supervise,
  until,
} from '../support/bots.mjs'
import { treeNamed } from '../support/hostile-trees.mjs'
import { cookieOf, crashed, owned } from '../support/orphans.mjs'
import { assert, describe, openWitness, program, script, test } from '../support/prelude.mjs'
import { NO_KEEPER, posixOnly } from '../support/system.mjs'

const limit = { timeout: 120_000 }
const options = { ...limit, skip: withoutUsers }
const together = { timeout: 600_000, concurrency: 2, skip: withoutUsers }

/** The message of a control client that cancels a run at once, as hexadecimal digits. */
function cancelFrame() {
  const said = execFileSync(script('../../native/spawn-owned-keeper'), ['--version'], { encoding: 'utf8' })
  const version = Number(/protocol (\d+)/.exec(said)[1])
  const reason = Buffer.from('manual-cancel')
  // Cancel is the eighth variant of `Request` in src/keeper/protocol.rs. The signal is 15, the grace 0.
  const payload = Buffer.concat([Buffer.from([7, 2 * 15, 0, reason.length]), reason])
  const header = Buffer.from([0x53, 0x4f, version, 0, payload.length, 0, 0, 0])
  return Buffer.concat([header, payload]).toString('hex')
}

/** Sends a frame to a keeper as that user. Returns the length of the answer in bytes. */
async function sendAs(address, uid, frame) {
  const { stdout } = await promisify(execFile)(program('control-client-of-user'), [
    address,
    String(uid),
    frame,
  ])
  return Number(stdout)
}

describe('another user', together, () => {
  test('gets no answer from a keeper and cannot cancel a run', options, async (t) => {
    const { record, witness, bot, runId } = await owned(t)
    const { address } = record.keeper
    const frame = cancelFrame()
    // More clients than the keeper refuses in one turn of its loop.
    const answers = await Promise.all(Array.from({ length: 20 }, () => sendAs(address, USER_A, frame)))
    assert.deepEqual(new Set(answers), new Set([0]))
    assertAlive(witness)
    assert.equal(await bot.ask('state', runId), 'running')
    // The same frame from the bot's own user cancels the run, so the frame itself is valid.
    assert.ok((await sendAs(address, process.getuid(), frame)) > 0)
    await witness.gone(30_000)
    assert.equal((await bot.ask('wait', runId)).reason, 'manual-cancel')
  })

  test('gets no answer from a keeper that cannot distinguish user ids', options, async (t) => {
    // A bot in a user namespace without id mappings: it sees all users, and itself, with one id.
    const path = freshRegistry()
    const bot = await startBot(t, path, { within: ['unshare', '--user'] })
    const witness = openWitness(t)
    const { runId } = await bot.ask('spawn', program('stays'), [witness.path])
    await witness.ready(1)
    const [record] = await bot.ask('list', { runId })
    assert.equal(await sendAs(record.keeper.address, USER_A, cancelFrame()), 0)
    assert.equal(await sendAs(record.keeper.address, USER_B, cancelFrame()), 0)
    assertAlive(witness)
    assert.equal(await bot.ask('state', runId), 'running')
    assert.equal((await bot.ask('cancelRun', runId)).reason, 'manual-cancel')
    assertGone(witness)
  })

  test('cannot make its process a member of a run with the cookie of the run', options, async (t) => {
    // A bot without privileges, because root can read the environment of every process.
    const path = registryOf(USER_A)
    const bot = await startBot(t, path)
    await bot.ask('become', USER_A)
    const { pid, runId } = await bot.ask('spawn', 'sleep', ['600'])
    const cookie = cookieOf((await bot.ask('list', { runId }))[0])
    const stranger = await startUser(t, USER_B)
    const forger = await stranger.ask('child', '/bin/sleep', ['600'], { SPAWN_OWNED_RUN: cookie })
    const [run, forged] = [captureStartToken(pid), captureStartToken(forger)]
    t.after(() => isSameProcess(forged) && process.kill(forger, 'SIGKILL'))
    await bot.killWithHelpers()
    assert.equal(isSameProcess(run), true)

    const next = await startBot(t, path)
    await next.ask('become', USER_A)
    const { killed } = await next.ask('reap', { graceMs: 500 })
    assert.deepEqual(killed, [pid])
    assert.equal(isSameProcess(run), false)
    assert.equal(isSameProcess(forged), true, 'the process of the other user is alive')
  })

  test('cannot replace the registry or its journal, even if the folder is writable', options, async (t) => {
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

    // The same with a journal, whose lines would be added to the bot's own registry.
    await user.ask('rename', path, `${path}.theirs`)
    writeFileSync(path, JSON.stringify({ version: 1, entries: [] }), { mode: 0o600 })
    const json = JSON.stringify({ intent: { entry } })
    await user.ask('write', `${path}.journal`, `\n${Buffer.byteLength(json)} ${json}\n`)
    await assert.rejects(supervise(path).reapOrphans(), refused)
    assertAlive(stranger.witness)
  })

  test('cannot read the registry', options, async (t) => {
    const { path } = await owned(t)
    for (const it of [dirname(dirname(path)), dirname(path)]) chmodSync(it, 0o755)
    // The run is in the journal first.
    await fileHas(path, 1)
    const user = await startUser(t)
    await assert.rejects(user.ask('read', path), { code: 'EACCES' })
  })
})

test('a command that runs as another user cannot signal its keeper, zygote or bot', options, async (t) => {
  const supervisor = createSupervisor({ registryPath: freshRegistry() })
  const line =
    'for pid in "$@"; do for it in STOP TERM KILL; do kill -$it $pid 2>/dev/null && echo $it $pid; done; done; echo done; read line'
  const run = supervisor.spawnOwned(
    '/bin/sh',
    ['-c', `keeper=$PPID; set -- $keeper ${process.pid}; ${line}`],
    {
      cwd: '/',
      uid: USER_A,
      gid: USER_A,
      stdio: ['pipe', 'pipe', 'inherit'],
      graceMs: 500,
    },
  )
  t.after(() => run.cancel({ graceMs: 0 }))
  let said = ''
  run.stdout.setEncoding('utf8').on('data', (text) => {
    said += text
  })
  await until(() => said.endsWith('done\n'), 'the command has tried all signals')
  assert.equal(said, 'done\n')
  const [record] = supervisor.list()
  assert.equal(statOf(run.pid).parent, keeperOf(record))
  const { reason, survivors } = await run.cancel()
  assert.deepEqual([reason, survivors], ['manual-cancel', []])
})

describe('the same user', posixOnly(NO_KEEPER, { timeout: 600_000, concurrency: 2 }), () => {
  /** Starts a process with the cookie of the run. */
  async function forged(t, record) {
    const witness = openWitness(t)
    const env = { SPAWN_OWNED_RUN: `x:${cookieOf(record)}` }
    spawn(program('stays'), [witness.path], { env, stdio: 'ignore', detached: true })
    await witness.ready(1)
    return witness
  }

  test('can make reapOrphans end its process with the cookie of a run without a keeper', limit, async (t) => {
    const { next, record, witness } = await crashed(t, { tree: treeNamed('half-setsid') })
    const forger = await forged(t, record)
    await next.reapOrphans()
    assertGone(witness)
    assertGone(forger)
  })

  test(
    'cannot make a keeper end its process with the cookie, because the keeper knows its tree',
    limit,
    async (t) => {
      const { next, record, runId, witness } = await owned(t)
      const forger = await forged(t, record)
      await next.cancel(runId)
      assertGone(witness)
      assertAlive(forger)
    },
  )
})
