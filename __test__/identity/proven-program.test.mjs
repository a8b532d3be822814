// spawnOwned does not wait for the exec of a program that was executed before
// (src/spawn/unix/exec_cache.rs). These tests let that exec fail.
import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawnOwned } from 'spawn-owned'
import { assert } from '../support/prelude.mjs'
import { NO_INTERPRETERS, posixTests } from '../support/system.mjs'

const { after, before, describe, it } = posixTests(NO_INTERPRETERS)

describe('a program that was executed before', () => {
  let folder
  let script
  let interpreter

  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'proven-'))
    interpreter = join(folder, 'interpreter')
    script = join(folder, 'script')
    copyFileSync('/bin/sh', interpreter)
    writeFileSync(script, `#!${interpreter}\nexit 3\n`)
    for (const file of [interpreter, script]) chmodSync(file, 0o755)
  })
  after(() => rmSync(folder, { recursive: true, maxRetries: 10 }))

  it('runs the first and the second time, and is then in the exec cache', async () => {
    for (let turn = 0; turn < 2; turn++) {
      assert.equal((await spawnOwned(script).wait()).exitCode, 3)
    }
  })

  it('emits error and close, without exit, if its exec fails although its file is unchanged', async () => {
    // The file is unchanged, so the cache cannot know that its interpreter is gone.
    rmSync(interpreter)
    const child = spawnOwned(script, ['argument'])
    const events = []
    for (const event of ['exit', 'error', 'close']) child.on(event, (value) => events.push([event, value]))
    const closed = new Promise((resolve) => child.once('close', resolve))
    const exit = await child.wait()
    await closed
    assert.equal(exit.reason, 'spawn-error')
    assert.equal(child.state, 'exited')
    const [[first, error], last] = events
    assert.deepEqual([first, events.length, last], ['error', 2, ['close', -2]])
    const { code, errno, syscall, path, spawnargs } = error
    assert.deepEqual(
      { code, errno, syscall, path, spawnargs },
      { code: 'ENOENT', errno: -2, syscall: `spawn ${script}`, path: script, spawnargs: ['argument'] },
    )
    assert.equal(child.kill(), false)
    assert.equal((await child.cancel()).reason, 'spawn-error')
  })

  it('is executed synchronously after its file changed, so the error comes at once', () => {
    writeFileSync(script, '#!/nowhere/sh\n')
    const child = spawnOwned(script)
    assert.equal(child.pid, undefined)
    return new Promise((resolve) => child.on('error', resolve))
  })
})
