// The files of the registry: what they are, when they are written, and what a preview of a command
// shows.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createSupervisor } from 'spawn-owned'
import { startBot } from '../support/obedient-bot.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { openRegistry } from '../support/registry.mjs'
import { withRun } from '../support/registry-runs.mjs'
import { isWindows, NO_GONE_DIRECTORY, NO_USERS, notInBun, posixOnly } from '../support/system.mjs'

describe('a preview', () => {
  test('has at most 120 characters', async (t) => {
    const { registry, run } = await withRun(t, { commandPreview: 'x'.repeat(500) })
    const { commandPreview } = await registry.has(run.runId)
    assert.ok([...commandPreview].length <= 120 && commandPreview.startsWith('xxx'), commandPreview)
    await run.cancel()

    const long = registry.supervise().spawnOwned('cat', ['-', ...Array(500).fill('ä')], { stdio: 'pipe' })
    const found = await registry.has(long.runId)
    assert.ok([...found.commandPreview].length <= 120 && found.commandPreview.startsWith('cat - ä ä'))
    // The run was alive all the time.
    assert.equal((await long.cancel()).reason, 'manual-cancel')
  })

  test('contains no value of the environment, and neither does any other file', async (t) => {
    const witness = openWitness(t)
    const registry = openRegistry(t)
    const { spawnOwned, registerProcess, unregisterProcess } = registry.supervise()
    const secret = `secret-${process.pid}-${Date.now()}`
    const env = { ...process.env, API_KEY: secret }
    const use = isWindows ? ': "$API_KEY"; exec "$0" "$1"' : 'test -n "$API_KEY" && exec "$0" "$1"'
    const run = spawnOwned('sh', ['-c', use, program('stays'), witness.path], { env, stdio: 'ignore' })
    const other = spawn(program('stays'), [witness.path], { env, stdio: 'ignore' })
    await witness.ready(2)
    const record = registerProcess({ pid: other.pid })
    assert.match(record.commandPreview, /stays/)
    const onDisk = [registry.everything()]
    const entry = await registry.has(record.runId)
    onDisk.push(registry.everything())
    assert.deepEqual([entry.pid, entry.commandPreview], [other.pid, record.commandPreview])
    for (const text of onDisk) assert.equal(text.includes(secret), false)
    assert.match(onDisk[1], /API_KEY/)
    assert.equal(unregisterProcess(record.runId), true)
    other.kill()
    await run.cancel()
  })
})

describe('the files', () => {
  test('are readable only by their owner, whatever the umask', posixOnly(NO_USERS), async (t) => {
    const umask = process.umask(0)
    t.after(() => process.umask(umask))
    const registry = openRegistry(t)
    const { spawnOwned } = registry.supervise()
    const name = 'process-registry.json'
    const seen = new Map()
    // Temporary files exist only for a moment after a change.
    while (![name, `${name}.journal`, `${name}.lock`, `${name}.history`].every((file) => seen.has(file))) {
      const run = spawnOwned('true', { stdio: 'ignore' })
      for (const [file, mode] of registry.modes()) seen.set(file, mode)
      await run.wait()
    }
    for (const file of seen.keys())
      assert.match(file.slice(name.length), /^$|^\.(journal|journal\.old|lock|tmp|history)$/)
    for (const [file, mode] of seen) assert.equal(mode & 0o7777, 0o600, `${file} ${mode.toString(8)}`)
  })

  test('are in data/ of the directory that is current at their first use', async (t) => {
    const registry = openRegistry(t)
    const otherFolder = mkdtempSync(join(tmpdir(), 'other-folder-'))
    t.after(() => rmSync(otherFolder, { recursive: true, maxRetries: 10 }))
    const bot = startBot(t, { cwd: otherFolder, env: { SPAWN_OWNED_REGISTRY: '' } })
    await bot.ask('chdir', registry.dir)
    const { runId } = await bot.ask('spawn', 'cat', [], { stdio: ['pipe', 'ignore', 'ignore'] })
    await bot.ask('chdir', otherFolder)
    await registry.has(runId)
    await bot.ask('endInput', runId)
    await bot.ask('wait', runId)
    await registry.lacks(runId)
    await bot.dismiss()
  })

  const BUN_REMEMBERS = 'Bun goes by the directory that was current, also when that is gone'
  test(
    'cannot be below a removed directory, which is an error',
    notInBun(BUN_REMEMBERS, posixOnly(NO_GONE_DIRECTORY)),
    async (t) => {
      const registry = openRegistry(t)
      const bot = startBot(t)
      await bot.ask('chdir', registry.dir)
      rmSync(registry.dir, { recursive: true })
      const path = { registryPath: 'data/process-registry.json' }
      await assert.rejects(bot.ask('supervise', path), {
        code: 'ERR_OWNED_REGISTRY_PATH',
        message:
          /"data\/process-registry\.json" is relative, and the current directory does not exist .* absolute path/,
      })
      await bot.dismiss()
    },
  )

  test('are at the absolute path of $SPAWN_OWNED_REGISTRY', async (t) => {
    const registry = openRegistry(t, join('some', 'where', 'runs.json'))
    const env = { SPAWN_OWNED_REGISTRY: join('some', 'where', 'runs.json') }
    const bot = startBot(t, { cwd: registry.dir, env })
    const { runId } = await bot.ask('spawn', 'cat', [], { stdio: ['pipe', 'ignore', 'ignore'] })
    await registry.has(runId)
    await bot.dismiss()
  })

  test('are at options.registryPath, whatever the environment says', async (t) => {
    const registry = openRegistry(t, 'runs.json')
    const env = { SPAWN_OWNED_REGISTRY: join(registry.dir, 'not-here.json') }
    const bot = startBot(t, { cwd: registry.dir, env, options: { registryPath: 'runs.json' } })
    const { runId } = await bot.ask('spawn', 'cat', [], { stdio: ['pipe', 'ignore', 'ignore'] })
    await registry.has(runId)
    await bot.dismiss()
    assert.deepEqual(
      registry.files().filter((name) => name.startsWith('not-here')),
      [],
    )
  })

  test('are not created by a supervisor, a list or a reaper that has nothing to do', async (t) => {
    const registry = openRegistry(t)
    const supervisor = registry.supervise()
    assert.equal(supervisor.registryPath, registry.path)
    assert.deepEqual(supervisor.list(), [])
    const { decisions } = await supervisor.reapOrphans()
    assert.deepEqual(decisions, [])
    assert.deepEqual(registry.files(), [])
  })

  test('are not created by a call that throws because of its arguments', (t) => {
    const registry = openRegistry(t)
    const { spawnOwned, registerProcess } = registry.supervise()
    assert.throws(() => spawnOwned('true', [], { runId: 'not an id' }), { code: 'ERR_INVALID_ARG_VALUE' })
    assert.throws(() => spawnOwned(7), { code: 'ERR_INVALID_ARG_TYPE' })
    assert.throws(() => registerProcess({ pid: 'seven' }), { code: 'ERR_INVALID_ARG_TYPE' })
    assert.throws(() => createSupervisor({ registryPath: '' }), { code: 'ERR_INVALID_ARG_VALUE' })
    assert.deepEqual(registry.files(), [])
  })
})
