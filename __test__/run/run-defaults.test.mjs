// Options of createSupervisor that are defaults for the options of its runs.
import { tmpdir } from 'node:os'
import { createSupervisor } from 'spawn-owned'
import { freshRegistry, supervise } from '../support/bots.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { NO_SHELL, posixOnly } from '../support/system.mjs'

const options = { timeout: 60_000 }
const printed = 'console.log(JSON.stringify([process.cwd(), process.env.A, process.env.B]))'
const waits = 'setInterval(() => {}, 1e6)'

describe('a default of the supervisor', options, () => {
  test('applies to spawnOwned and run, with and without args', async () => {
    const cwd = tmpdir()
    const env = { ...process.env, A: 'default' }
    const { run, spawnOwned } = supervise(freshRegistry(), { cwd, env, sessionId: 's', shell: true })
    const node = JSON.stringify(process.execPath)
    const { stdout } = await run(`${node} -p process.env.A`)
    assert.equal(stdout, 'default\n')
    const child = spawnOwned('exit 3', { stdio: 'ignore' })
    assert.equal(child.sessionId, 's')
    assert.equal((await child.wait()).exitCode, 3)
  })

  test('loses against the option of the run, but not against undefined', async () => {
    const env = { ...process.env, A: '1', B: '1' }
    const { run } = supervise(freshRegistry(), { env })
    const of = async (more) =>
      JSON.parse((await run(process.execPath, ['-e', printed], more)).stdout).slice(1)
    assert.deepEqual(await of(), ['1', '1'])
    assert.deepEqual(await of({ env: undefined }), ['1', '1'])
    assert.deepEqual(await of({ env: { ...process.env, A: '2' } }), ['2', null])
  })

  test('for labels is merged with the labels of the run', async () => {
    const labels = { agent: 'a', company: 'c' }
    const supervisor = supervise(freshRegistry(), { labels })
    labels.company = 'changed later'
    const child = supervisor.spawnOwned(process.execPath, ['-e', waits], {
      labels: { agent: 'b', turn: '1' },
    })
    assert.deepEqual(child.labels, { agent: 'b', company: 'c', turn: '1' })
    assert.equal(supervisor.list({ labels: { company: 'c' } }).length, 1)
    assert.throws(() => supervisor.spawnOwned('x', { labels: { agent: 1 } }), {
      code: 'ERR_INVALID_ARG_TYPE',
    })
    await child.cancel({ graceMs: 0 })
  })

  test('for timeouts ends a run', async () => {
    const { run } = supervise(freshRegistry(), { timeoutMs: 300, graceMs: 0 })
    assert.equal((await run(process.execPath, ['-e', waits])).reason, 'overall-timeout')
    const { reason } = await supervise(freshRegistry(), { noOutputTimeoutMs: 300, graceMs: 0 }).run(
      process.execPath,
      ['-e', waits],
    )
    assert.equal(reason, 'no-output-timeout')
  })

  test('for noOutputTimeoutMs is ignored without a pipe', async () => {
    const { spawnOwned } = supervise(freshRegistry(), { noOutputTimeoutMs: 60_000 })
    assert.equal((await spawnOwned(process.execPath, ['-e', '0'], { stdio: 'ignore' }).wait()).ok, true)
    assert.throws(() => spawnOwned('x', { stdio: 'ignore', noOutputTimeoutMs: 1 }), {
      code: 'ERR_INVALID_ARG_VALUE',
    })
  })

  test('for onLeaderExit keeps descendants', posixOnly(NO_SHELL), async () => {
    const { spawnOwned } = supervise(freshRegistry(), { onLeaderExit: 'keep' })
    const child = spawnOwned('sh', ['-c', 'sleep 600 &'], { stdio: 'ignore' })
    await child.exited
    assert.equal((await child.usage()).processes, 1)
    assert.equal((await child.cancel({ graceMs: 0 })).reason, 'manual-cancel')
  })
})

test('an invalid default is an error of createSupervisor', () => {
  const registryPath = freshRegistry()
  for (const [wrong, code] of [
    [{ timeoutMs: 'x' }, 'ERR_INVALID_ARG_TYPE'],
    [{ onLeaderExit: 'stay' }, 'ERR_INVALID_ARG_VALUE'],
    [{ labels: { a: 1 } }, 'ERR_INVALID_ARG_TYPE'],
    [{ replaceExistingScope: true }, 'ERR_INVALID_ARG_VALUE'],
    [{ runId: 'x' }, 'ERR_INVALID_ARG_VALUE'],
    [{ stdio: 'pipe' }, 'ERR_INVALID_ARG_VALUE'],
    [{ timeoutMS: 1 }, 'ERR_INVALID_ARG_VALUE'],
  ])
    assert.throws(() => createSupervisor({ registryPath, ...wrong }), { code })
})
