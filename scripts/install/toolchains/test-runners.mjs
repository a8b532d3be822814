// Test runners: runs work with fake timers, and an idle package keeps no test runner waiting.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inProject } from '../project.mjs'

const node = process.execPath
const write = (project, name, text) => writeFileSync(join(project, name), text)

/** The body of the tests. `useFakeTimers` is a statement of the runner. */
const tests = (useFakeTimers) => `
test('a run starts, reports and ends', async () => {
  ${useFakeTimers}
  const supervisor = createSupervisor({ registryPath: process.env.REGISTRY })
  const child = supervisor.spawnOwned('sh', ['-c', 'sleep 1000 & echo up; wait'])
  await new Promise((resolve) => child.stdout.once('data', resolve))
  const { reason, survivors } = await child.cancel({ graceMs: 500 })
  expect({ reason, survivors }).toEqual({ reason: 'manual-cancel', survivors: [] })
  const late = await supervisor.spawnOwned('sleep', ['1000'], { timeoutMs: 50 }).wait()
  expect(late.reason).toBe('overall-timeout')
  expect(late.durationMs).toBeGreaterThanOrEqual(50)
  await new Promise((resolve) => supervisor.spawnOwned('no-such-command').on('error', resolve))
  await supervisor.shutdown()
  await supervisor.close()
}, 30_000)
`

export const testRunners = {
  vitest: {
    packages: { vitest: '4.1.12', vite: '8.3.8' },
    async check(project, tools) {
      const imports =
        "import { expect, test, vi } from 'vitest'\nimport { createSupervisor } from 'spawn-owned'\n"
      write(project, 'real.test.mjs', imports + tests(''))
      write(project, 'fake.test.mjs', imports + tests('vi.useFakeTimers()'))
      // Before the package is loaded.
      const late = "import { expect, test, vi } from 'vitest'\n"
      const load = "vi.useFakeTimers()\n  const { createSupervisor } = await import('spawn-owned')"
      write(project, 'late.test.mjs', late + tests(load))
      const vitest = join(tools, 'vitest', 'vitest.mjs')
      for (const pool of ['forks', 'threads', 'vmThreads', 'vmForks'])
        await inProject(project, node, [vitest, 'run', '--pool', pool, '--root', project], {
          env: { REGISTRY: join(project, pool, 'registry.json') },
        })
      return 'pools forks, threads, vmThreads and vmForks, with real and fake timers, also before the import'
    },
  },

  jest: {
    packages: { jest: '30.5.2' },
    async check(project, tools) {
      const imports = "const { createSupervisor } = require('spawn-owned')\n"
      write(project, 'real.test.js', imports + tests(''))
      write(project, 'fake.test.js', imports + tests('jest.useFakeTimers()'))
      write(project, 'legacy.test.js', imports + tests('jest.useFakeTimers({ legacyFakeTimers: true })'))
      write(
        project,
        'idle.test.js',
        "test('loads', () => expect(typeof require('spawn-owned').spawnOwned).toBe('function'))\n",
      )
      const jest = join(tools, 'jest', 'bin', 'jest.js')
      const env = { REGISTRY: join(project, 'data', 'registry.json') }
      const run = (...args) =>
        inProject(project, node, [jest, '--rootDir', project, ...args], { env, withErrors: true })
      await run('real', 'fake', 'legacy')
      // Before the package is loaded.
      await run(
        'real',
        '--config',
        JSON.stringify({ rootDir: project, fakeTimers: { enableGlobally: true } }),
      )
      for (const name of ['idle', 'real']) {
        const { stderr } = await run('--detectOpenHandles', '--runInBand', name)
        assert.doesNotMatch(stderr, /open handle|did not exit/)
      }
      return 'with real and fake timers, also enabled globally; no open handles when idle or closed'
    },
  },
}
