// A command that closes the descriptors that the bot writes to.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { freshRegistry } from '../support/bots.mjs'
import { assert, library, script, test } from '../support/prelude.mjs'
import { isLinux, isNode } from '../support/system.mjs'

// The native thread does not run in this bot, so spawnOwned must do all necessary steps before it
// returns.
test('a write to a closed stdin fails with EPIPE, also before the native thread runs', {
  timeout: 60_000,
  skip: !(isLinux && isNode) && 'needs LD_PRELOAD and Node',
}, async () => {
  const bot = [script('writes-to-a-closed-stdin.mjs'), freshRegistry(), '5']
  const env = { ...process.env, LD_PRELOAD: library('holds-the-native-thread') }
  const { stdout } = await promisify(execFile)(process.execPath, bot, { env, timeout: 30_000 })
  assert.deepEqual(stdout.trim().split('\n'), Array(10).fill('EPIPE'))
})
