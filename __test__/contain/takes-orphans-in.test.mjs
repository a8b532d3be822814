// A bot that is PID 1 or a child subreaper: keepers that lose their zygote become its children.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { freshRegistry } from '../support/bots.mjs'
import { namespace, withoutNamespace } from '../support/namespace.mjs'
import { assert, describe, program, script, test } from '../support/prelude.mjs'
import { isLinux } from '../support/system.mjs'

const options = { timeout: 60_000 }

async function assertNoZombies(command, ...args) {
  const bot = [process.execPath, script('kills-its-zygotes.mjs'), freshRegistry()]
  const { stdout } = await promisify(execFile)(command, [...args, ...bot], { timeout: 50_000 })
  const { pid, rounds } = JSON.parse(stdout)
  const cancelled = ['manual-cancel', 0]
  const expected = { zombies: [], reasons: [cancelled, cancelled, cancelled], libuv: [0, 1, 0] }
  assert.deepEqual(rounds, [expected, expected, expected])
  return pid
}

describe('a bot whose zygote is killed reaps its keepers and leaves other children to Node', () => {
  test('as PID 1', { ...options, skip: withoutNamespace }, async () => {
    assert.equal(await assertNoZombies(...namespace), 1)
  })

  test('as a child subreaper', {
    ...options,
    skip: !isLinux && 'only Linux has child subreapers',
  }, async () => {
    await assertNoZombies(program('becomes-subreaper'))
  })
})
