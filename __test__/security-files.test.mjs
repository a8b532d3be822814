// Whatever is put in the place of a registry's files, nothing else is written to, nobody waits for ever, and it is told.
import assert from 'node:assert/strict'
import { execFile, execFileSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { NOBODY, withoutUsers } from './support/another-user.mjs'
import { assertGone, bystander, freshRegistry, supervise, until } from './support/bots.mjs'
import { spawnOwnedCli } from './support/cli.mjs'
import { program } from './support/fixtures.mjs'
import { crashed } from './support/orphans.mjs'
import { NO_USERS, posixTests, removeFolder } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const { describe, test } = posixTests(NO_USERS)
const options = { timeout: 120_000 }

/** A folder for a registry, and a file beside it that must stay as it is. */
function scene() {
  const path = freshRegistry([])
  const treasure = join(dirname(path), '..', 'treasure')
  writeFileSync(treasure, 'untouched', { mode: 0o600 })
  return { path, treasure, isUntouched: () => readFileSync(treasure, 'utf8') === 'untouched' }
}

describe('another name for a file of ours', options, () => {
  test('as the journal is refused before anything is started', options, async (t) => {
    const { path, treasure, isUntouched } = scene()
    linkSync(treasure, `${path}.journal`)
    const supervisor = supervise(path)
    const [witness, stranger] = [openWitness(t), await bystander(t)]
    const refused = { code: 'ERR_OWNED_REGISTRY_LINKED' }
    assert.throws(() => supervisor.spawnOwned(program('stays'), [witness.path]), refused)
    assert.throws(() => supervisor.registerProcess({ pid: stranger.pid }), refused)
    assert.ok(isUntouched())
    assert.equal(supervisor.list().length, 0)
  })

  test('as the log of orphans is not written to, and stops nothing', options, async (t) => {
    const { treasure, isUntouched } = scene()
    const { pid, next, path, witness } = await crashed(t)
    linkSync(treasure, join(dirname(path), 'orphan-events.log'))
    assert.deepEqual((await next.reapOrphans()).killed, [pid])
    assertGone(witness)
    assert.ok(isUntouched())
    await until(() => next.events.some(({ type }) => type === 'registry'), 'that is told')
  })

  test('that is replaced, read or locked, does no harm', options, async () => {
    const { path } = scene()
    linkSync(path, `${path}.copy`)
    writeFileSync(`${path}.lock`, '', { mode: 0o600 })
    linkSync(`${path}.lock`, `${path}.lock.copy`)
    const before = readFileSync(`${path}.copy`, 'utf8')
    const { reason } = await supervise(path).spawnOwned('true', { stdio: 'ignore' }).wait()
    assert.equal(reason, 'exit')
    assert.equal(readFileSync(`${path}.copy`, 'utf8'), before)
  })
})

describe('what is put in the way of a checkpoint', options, () => {
  test('(a link of either kind, a FIFO, where it is written first) is not followed', options, async (t) => {
    const { path, treasure, isUntouched } = scene()
    const ways = [
      (at) => symlinkSync(treasure, at),
      (at) => linkSync(treasure, at),
      (at) => execFileSync('mkfifo', [at]),
    ]
    for (const put of ways) {
      const supervisor = supervise(path)
      put(`${path}.tmp`)
      const witness = openWitness(t)
      const run = supervisor.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore' })
      await witness.ready(1)
      await until(() => readFileSync(path, 'utf8').includes(run.runId), 'the file is up to date')
      assert.ok(isUntouched())
      await run.cancel({ graceMs: 0 })
      assertGone(witness)
      await until(() => !existsSync(`${path}.tmp`), 'what was in the way is gone')
    }
  })
})

describe('the command line', options, () => {
  for (const [what, file] of Object.entries({
    log: 'orphan-events.log',
    registry: 'process-registry.json',
  })) {
    test(`does not wait for whoever writes to a FIFO in place of the ${what}`, options, async () => {
      const path = freshRegistry()
      mkdirSync(dirname(path), { recursive: true })
      execFileSync('mkfifo', [join(dirname(path), file)])
      for (const command of ['events', 'metrics', 'doctor', 'ps']) {
        const { code } = await spawnOwnedCli(path, [command])
        assert.ok([0, 1].includes(code), command)
      }
    })
  }

  test('says so if others can write in the folder, and only then', options, async () => {
    const { path } = scene()
    const warning = async () => {
      const { checks } = (await spawnOwnedCli(path, ['doctor', '--json'])).json()
      return checks.find(({ name }) => name === 'folder')?.status
    }
    const folder = dirname(path)
    for (const [mode, expected] of [
      [0o755, undefined],
      [0o700, undefined],
      [0o777, 'warning'],
      [0o1777, undefined],
    ]) {
      chmodSync(folder, mode)
      assert.equal(await warning(), expected, mode.toString(8))
    }
  })
})

test('whatever is made is for its owner only, whatever the umask says', options, async (t) => {
  const umask = process.umask(0)
  t.after(() => process.umask(umask))
  const { path, next, witness } = await crashed(t)
  await next.reapOrphans()
  assertGone(witness)
  await until(() => existsSync(path), 'the file has followed the journal')
  const names = readdirSync(dirname(path))
  assert.ok(names.includes('orphan-events.log'), names.join())
  for (const name of names) assert.equal(statSync(join(dirname(path), name)).mode & 0o777, 0o600, name)
})

test('a program that has more rights than whoever has started it does not write where the environment says', {
  ...options,
  skip: withoutUsers,
}, async (t) => {
  const [here, there] = [1, 2].map(() => mkdtempSync(join(tmpdir(), 'raised-')))
  t.after(() => [here, there].forEach(removeFolder))
  for (const folder of [here, there]) chownSync(folder, NOBODY, NOBODY)
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: join(there, 'registry.json') }
  // Started by root, with the rights of another: which of both has more is all the same.
  const code = `import { createSupervisor } from ${JSON.stringify(new URL('../dist/index.mjs', import.meta.url))}
      process.chdir(${JSON.stringify(here)})
      process.setegid(${NOBODY})
      process.seteuid(${NOBODY})
      console.log(createSupervisor().registryPath)
      process.seteuid(0)
      process.setegid(0)
      console.log(createSupervisor().registryPath)`
  const args = ['--input-type=module', '-e', code]
  const { stdout } = await promisify(execFile)(process.execPath, args, { env })
  assert.deepEqual(stdout.trim().split('\n'), [
    join(here, 'data', 'process-registry.json'),
    join(there, 'registry.json'),
  ])
})
