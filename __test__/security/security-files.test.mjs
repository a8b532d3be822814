// Links and FIFOs in place of the registry's files: no other file is written, no call blocks
// forever, and the caller gets an error or a warning.
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
import { USER_A, withoutUsers } from '../support/another-user.mjs'
import { assertGone, bystander, freshRegistry, supervise, until } from '../support/bots.mjs'
import { spawnOwnedCli } from '../support/cli.mjs'
import { crashed } from '../support/orphans.mjs'
import { assert, openWitness, options, program } from '../support/prelude.mjs'
import { NO_USERS, posixTests, removeFolder } from '../support/system.mjs'

const { describe, test } = posixTests(NO_USERS)

/** A folder for a registry, and a file beside it that must stay as it is. */
function scene() {
  const path = freshRegistry([])
  const otherFile = join(dirname(path), '..', 'otherFile')
  writeFileSync(otherFile, 'untouched', { mode: 0o600 })
  return { path, otherFile, isUntouched: () => readFileSync(otherFile, 'utf8') === 'untouched' }
}

describe('a hard link', options, () => {
  test('in place of the journal is refused before a process is started', options, async (t) => {
    const { path, otherFile, isUntouched } = scene()
    linkSync(otherFile, `${path}.journal`)
    const supervisor = supervise(path)
    const [witness, stranger] = [openWitness(t), await bystander(t)]
    const refused = { code: 'ERR_OWNED_REGISTRY_LINKED' }
    assert.throws(() => supervisor.spawnOwned(program('stays'), [witness.path]), refused)
    assert.throws(() => supervisor.registerProcess({ pid: stranger.pid }), refused)
    assert.ok(isUntouched())
    assert.equal(supervisor.list().length, 0)
  })

  test('in place of the orphan log is not written, and reaping goes on', options, async (t) => {
    const { otherFile, isUntouched } = scene()
    const { pid, next, path, witness } = await crashed(t)
    linkSync(otherFile, join(dirname(path), 'orphan-events.log'))
    assert.deepEqual((await next.reapOrphans()).killed, [pid])
    assertGone(witness)
    assert.ok(isUntouched())
    await until(() => next.events.some(({ type }) => type === 'registry'), 'the warning arrives')
  })

  test('to the registry or lock file does not change when the registry is written', options, async () => {
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

describe('a checkpoint', options, () => {
  test('does not write to a link or FIFO in place of its temporary file', options, async (t) => {
    const { path, otherFile, isUntouched } = scene()
    const ways = [
      (at) => symlinkSync(otherFile, at),
      (at) => linkSync(otherFile, at),
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
      await until(() => !existsSync(`${path}.tmp`), 'the link or FIFO is gone')
    }
  })
})

describe('the command line', options, () => {
  for (const [what, file] of Object.entries({
    log: 'orphan-events.log',
    registry: 'process-registry.json',
  })) {
    test(`does not block on a FIFO in place of the ${what}`, options, async () => {
      const path = freshRegistry()
      mkdirSync(dirname(path), { recursive: true })
      execFileSync('mkfifo', [join(dirname(path), file)])
      for (const command of ['events', 'metrics', 'doctor', 'ps']) {
        const { code } = await spawnOwnedCli(path, [command])
        // 4: the registry could not be read.
        assert.ok([0, 1, 4].includes(code), `${command} exits with ${code}`)
      }
    })
  }

  test('warns if other users can write in the folder, and only then', options, async () => {
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

test('all created files are readable by their owner only, for any umask', options, async (t) => {
  const umask = process.umask(0)
  t.after(() => process.umask(umask))
  const { path, next, witness } = await crashed(t)
  await next.reapOrphans()
  assertGone(witness)
  await until(() => existsSync(path), 'the checkpoint has written the file')
  const names = readdirSync(dirname(path))
  assert.ok(names.includes('orphan-events.log'), names.join())
  for (const name of names) assert.equal(statSync(join(dirname(path), name)).mode & 0o777, 0o600, name)
})

test('a program with more rights than its caller ignores the registry path of the environment', {
  ...options,
  skip: withoutUsers,
}, async (t) => {
  const [here, there] = [1, 2].map(() => mkdtempSync(join(tmpdir(), 'raised-')))
  t.after(() => [here, there].forEach(removeFolder))
  for (const folder of [here, there]) chownSync(folder, USER_A, USER_A)
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: join(there, 'registry.json') }
  // Started by root with the rights of another user: the check only needs a difference.
  const code = `import { createSupervisor } from ${JSON.stringify(new URL('../../dist/index.mjs', import.meta.url))}
      process.chdir(${JSON.stringify(here)})
      process.setegid(${USER_A})
      process.seteuid(${USER_A})
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
