// A bot that gets no thread for what it asks for (EAGAIN: a limit of processes counts threads, too).
import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import { chownSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { withoutUsers } from './support/another-user.mjs'
import { addon, script } from './support/fixtures.mjs'

/** Nobody's but ours: processes are counted by user, whoever has started them. */
const user = 200_000_000 + process.pid
const as = { uid: user, gid: user }
const program = script('gets-no-thread.mjs')

function whyNot() {
  if (withoutUsers) return withoutUsers
  if (spawnSync('prlimit', ['--version']).status !== 0) return 'there is no prlimit'
  const look = 'test -r "$1" && test -r "$2"'
  const canRead = spawnSync('sh', ['-c', look, 'sh', program, addon], as).status === 0
  return canRead ? false : 'another user cannot read what is tested'
}

test('who is told that no thread is to be had can end all the same', { skip: whyNot() }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'no-threads-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  chownSync(folder, user, user)
  const args = [program, join(folder, 'process-registry.json')]
  // One that keeps its event loop alive for a promise that nobody settles is killed, and has no exit code.
  const options = { ...as, timeout: 30_000, killSignal: 'SIGKILL' }
  const told = await new Promise((resolve) => {
    execFile(process.execPath, args, options, (error, stdout, stderr) => resolve({ error, stdout, stderr }))
  })
  assert.equal(told.error, null, `${told.error}\n${told.stderr}`)
  assert.equal(told.stdout, 'ERR_OWNED_NO_THREADS\n', told.stderr)
})
