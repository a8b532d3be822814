// A command that cannot be started: `error` comes first, then `wait()` resolves with the same
// error.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freshRegistry, supervise } from '../support/bots.mjs'
import { after, assert, describe, test } from '../support/prelude.mjs'
import { NO_INTERPRETERS, NOT_NODES, nodeOnly, posixOnly, removeFolder } from '../support/system.mjs'

const options = { timeout: 60_000 }
const folder = mkdtempSync(join(tmpdir(), 'failed-start-'))
after(() => removeFolder(folder))
const [forbidden, broken] = [join(folder, 'forbidden'), join(folder, 'broken')]
writeFileSync(forbidden, '')
writeFileSync(broken, '#!/nonexistent/interpreter\n')
chmodSync(broken, 0o755)

describe('the event error comes before wait() resolves:', options, () => {
  const { spawnOwned } = supervise(freshRegistry())
  const commands = {
    'no such command': '/nonexistent/command',
    'no permission': forbidden,
    'no interpreter': broken,
  }
  for (const [what, command] of Object.entries(commands)) {
    test(what, posixOnly(NO_INTERPRETERS), async () => {
      for (const first of ['error', 'wait']) {
        const child = spawnOwned(command)
        const settled = []
        const error = once(child, 'error').then(([it]) => void settled.push('error') || it)
        const exit = () => child.wait().then((it) => void settled.push('wait') || it)
        // The order of the two calls must not matter.
        const [failure, ending] =
          first === 'wait'
            ? (await Promise.all([exit(), error])).reverse()
            : await Promise.all([error, exit()])
        assert.deepEqual(settled, ['error', 'wait'])
        assert.equal(ending.reason, 'spawn-error')
        assert.equal(ending.error.code, failure.code)
      }
    })
  }

  test('the listener can await in between', async () => {
    const child = spawnOwned('/nonexistent/command')
    const slow = async () => {
      const [error] = await once(child, 'error')
      for (let step = 0; step < 20; step++) await null
      return error
    }
    const winner = await Promise.race([slow(), child.wait()])
    assert.ok(winner instanceof Error)
    assert.equal(child.state, 'exited')
    await child.wait()
  })

  test('the run had to wait for its scope', async () => {
    const scope = { scopeKey: 'scope', replaceExistingScope: true, graceMs: 500, stdio: 'ignore' }
    const earlier = spawnOwned('sleep', ['600'], scope)
    await once(earlier, 'spawn')
    const child = spawnOwned('/nonexistent/command', ['a'], scope)
    assert.equal(child.state, 'starting')
    const winner = await Promise.race([once(child, 'error'), child.wait()])
    assert.ok(Array.isArray(winner), 'the event comes first')
    assert.deepEqual(errorOf(await child.wait()), propertiesOf(winner[0]))
    assert.deepEqual([winner[0].path, winner[0].spawnargs], ['/nonexistent/command', ['a']])
  })
})

test("the exit has the properties of Node's own error", options, async () => {
  const { spawnOwned } = supervise(freshRegistry())
  const [theirs] = await once(spawn('/nonexistent/command', ['a', 'b']), 'error')
  const child = spawnOwned('/nonexistent/command', ['a', 'b'])
  const [ours] = await once(child, 'error')
  const exit = await child.wait()
  assert.deepEqual(propertiesOf(ours), propertiesOf(theirs))
  assert.deepEqual(errorOf(exit), propertiesOf(theirs))
  assert.deepEqual(JSON.parse(JSON.stringify(exit)), exit)
})

test('the exit of a started command has no error', options, async () => {
  const exit = await supervise(freshRegistry()).spawnOwned('true', { stdio: 'ignore' }).wait()
  assert.ok(!('error' in exit))
})

test('wait() resolves although the error has no listener', nodeOnly(NOT_NODES, options), async () => {
  const script = `
    const { spawnOwned } = require('spawn-owned')
    const show = ({ reason, error }) => console.log(reason, error.code)
    // Awaited too late: the error is thrown first, as in Node.
    const child = spawnOwned('/nonexistent/command')
    process.once('uncaughtException', (error) => {
      console.log('uncaught', error.code)
      child.wait().then(show).then(() => spawnOwned('/nonexistent/command').wait().then(show))
    })`
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() }
  const bot = spawn(process.execPath, ['-e', script], {
    cwd: fileURLToPath(new URL('..', import.meta.url)),
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  for await (const text of bot.stdout) output += text
  assert.equal(output, 'uncaught ENOENT\nspawn-error ENOENT\nspawn-error ENOENT\n')
})

const errorOf = ({ error }) => ({ ...error })

function propertiesOf(error) {
  const { code, message, errno, syscall, path, spawnargs } = error
  return { code, message, errno, syscall, path, spawnargs }
}
