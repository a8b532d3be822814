// `run --no-output-timeout` without a terminal: the command line reads the output that it measures, and
// copies it to its own stdout and stderr, which are pipes or files.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { assertGone, freshRegistry } from '../support/bots.mjs'
import { cli, spawnOwnedCli as so } from '../support/cli.mjs'
import { program } from '../support/fixtures.mjs'
import { NO_SHELL, posixOnly } from '../support/system.mjs'
import { openWitness } from '../support/witness.mjs'

const options = { timeout: 60_000 }
const node = (script) => ['--', process.execPath, '-e', script]

describe('run --no-output-timeout without a terminal', options, () => {
  test('passes on what a silent command printed, and ends it with 124', async () => {
    const script = 'console.log("out"); console.error("err"); setInterval(() => {}, 1e6)'
    const { code, stdout, stderr } = await so(freshRegistry(), [
      'run',
      '--no-output-timeout',
      '3s',
      ...node(script),
    ])
    assert.deepEqual([code, stdout], [124, 'out\n'])
    assert.equal(stderr, 'err\nspawn-owned: no output for 3s\n')
  })

  test('does not end a command that prints, and passes on its exit code', async () => {
    // It prints for longer than the timeout.
    const script = `
      let count = 0
      setInterval(() => (count++ < 60 ? console.error(count) : process.exit(7)), 50)`
    const args = ['run', '--no-output-timeout', '2s', ...node(script)]
    const { code, stdout, stderr } = await so(freshRegistry(), args)
    assert.deepEqual([code, stdout, stderr.trim().split('\n').length], [7, '', 60])
  })

  test('passes on stdin', posixOnly(NO_SHELL), async () => {
    const args = ['run', '--no-output-timeout', '1h', '--', 'cat']
    const { code, stdout } = await so(freshRegistry(), args, { input: 'in\n' })
    assert.deepEqual([code, stdout], [0, 'in\n'])
  })

  test('writes every byte to a file', async () => {
    const registryPath = freshRegistry([])
    const path = join(dirname(registryPath), 'output')
    const file = openSync(path, 'w')
    const script = 'for (let i = 0; i < 300_000; i++) process.stdout.write(i + "\\n")'
    const it = spawn(
      process.execPath,
      [cli, 'run', '--registry', registryPath, '--no-output-timeout', '1h', ...node(script)],
      { stdio: ['ignore', file, 'inherit'] },
    )
    const [code] = await once(it, 'exit')
    closeSync(file)
    assert.equal(code, 0)
    const lines = readFileSync(path, 'utf8').split('\n')
    assert.equal(lines.pop(), '')
    assert.deepEqual([lines.length, lines.findIndex((line, index) => line !== String(index))], [300_000, -1])
  })

  test('ends a command that writes to a reader that is gone', posixOnly(NO_SHELL), async (t) => {
    const witness = openWitness(t)
    const line = `'${program('stays')}' '${witness.path}' & yes`
    const it = spawn(process.execPath, [cli, 'run', '--no-output-timeout', '1h', '--', 'sh', '-c', line], {
      env: { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() },
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    t.after(() => it.kill('SIGKILL'))
    await witness.ready(1)
    await once(it.stdout, 'data')
    it.stdout.destroy()
    const [code] = await once(it, 'exit')
    assert.notEqual(code, 0)
    assertGone(witness)
  })
})
