// A bot that cannot create a thread: EAGAIN, because a process limit also counts threads.
import { execFile, spawnSync } from 'node:child_process'
import { chownSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { withoutUsers } from '../support/another-user.mjs'
import { addon, assert, script, test } from '../support/prelude.mjs'

/** A user that only this test uses, because the kernel counts processes per user. */
const user = 200_000_000 + process.pid
const as = { uid: user, gid: user }
const program = script('gets-no-thread.mjs')

function whyNot() {
  if (withoutUsers) return withoutUsers
  if (spawnSync('prlimit', ['--version']).status !== 0) return 'prlimit is not installed'
  const readable = 'test -r "$1" && test -r "$2"'
  const canRead = spawnSync('sh', ['-c', readable, 'sh', program, addon], as).status === 0
  return canRead ? false : 'another user cannot read the files under test'
}

test('a bot can exit after ERR_OWNED_NO_THREADS', { skip: whyNot() }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'no-threads-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  chownSync(folder, user, user)
  const args = [program, join(folder, 'process-registry.json')]
  // If an unsettled promise kept the event loop alive, the timeout would kill the bot, and it would
  // have no exit code.
  const options = { ...as, timeout: 30_000, killSignal: 'SIGKILL' }
  const result = await new Promise((resolve) => {
    execFile(process.execPath, args, options, (error, stdout, stderr) => resolve({ error, stdout, stderr }))
  })
  assert.equal(result.error, null, `${result.error}\n${result.stderr}`)
  assert.equal(result.stdout, 'ERR_OWNED_NO_THREADS\n', result.stderr)
})
