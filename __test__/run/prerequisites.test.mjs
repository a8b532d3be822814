// What a start needs from the system: descriptors, processes, /proc. If one is missing, the error
// names it, and nothing starts.
import { execFile, spawnSync } from 'node:child_process'
import { chownSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { withoutUsers } from '../support/another-user.mjs'
import { entriesOf, freshRegistry, startBot } from '../support/bots.mjs'
import { withoutNamespace } from '../support/namespace.mjs'
import { addon, assert, describe, options, script, test } from '../support/prelude.mjs'
import { isLinux, isNode } from '../support/system.mjs'

describe('with few descriptors', {
  ...options,
  concurrency: 2,
  skip: !(isLinux && isNode) && 'needs Node on Linux',
}, () => {
  const none = { how: ['error', 'EMFILE', 'spawn true'], shape: Array(5).fill(true) }
  const started = { how: ['exit', 0], shape: Array(5).fill(false) }

  /**
   * Returns the outcome of Node's spawn, of spawnOwned, and the rest of the registry, with `free`
   * descriptors left.
   */
  async function outcomes(free, ...more) {
    const command = ['-c', 'ulimit -n 256; exec "$@"', 'sh', process.execPath]
    const bot = [script('starts-with-few-descriptors.mjs'), freshRegistry(), String(free), ...more]
    const { stdout } = await promisify(execFile)('sh', [...command, ...bot], { timeout: 30_000 })
    return JSON.parse(stdout)
  }

  for (const [what, ...more] of [['the first run'], ['a later run', 'warm']]) {
    for (const free of [0, 2, 5, 8, 10, 11, 12, 13, 14, 15, 16, 20]) {
      test(`${what} starts, or fails as in Node, with ${free} left`, options, async () => {
        const {
          outcomes: [theirs, ours],
          left,
        } = await outcomes(free, ...more)
        assert.deepEqual(theirs, theirs.how[0] === 'exit' ? started : none)
        assert.deepEqual(ours, ours.how[0] === 'exit' ? started : none)
        assert.deepEqual(left, [])
      })
    }
  }
})

/** A user that only this test uses, because the kernel counts processes per user. */
const user = 210_000_000 + process.pid

function withoutLimits() {
  if (withoutUsers) return withoutUsers
  if (spawnSync('prlimit', ['--version']).status !== 0) return 'prlimit is not installed'
  const canReadCommand = [
    '-c',
    'test -r "$1" && test -r "$2"',
    'sh',
    script('starts-with-few-processes.mjs'),
    addon,
  ]
  const canRead = spawnSync('sh', canReadCommand, { uid: user, gid: user }).status === 0
  return canRead ? false : 'another user cannot read the files under test'
}

describe('with few processes', { ...options, skip: withoutLimits() }, () => {
  const none = ['error', 'EAGAIN', 'spawn true']
  for (const [more, ...warm] of [[0], [1], [2], [3], [4], [5], [6], [7], [8], [12], [0, 'warm']]) {
    test(`a run starts, or fails as in Node, with ${more} left ${warm}`, options, async (t) => {
      const folder = mkdtempSync(join(tmpdir(), 'few-processes-'))
      t.after(() => rmSync(folder, { recursive: true, force: true }))
      chownSync(folder, user, user)
      const path = join(folder, 'process-registry.json')
      const bot = [script('starts-with-few-processes.mjs'), path, String(more), ...warm]
      const as = { uid: user, gid: user, timeout: 30_000 }
      const { stdout } = await promisify(execFile)(process.execPath, bot, as)
      const { outcomes, left } = JSON.parse(stdout)
      for (const { how, shape, closed } of outcomes) {
        const failed = how[0] !== 'exit'
        // Node creates the streams also if the fork fails, and closes them.
        assert.deepEqual([how, shape], [failed ? none : ['exit', 0], [false, false, false, false, failed]])
        assert.deepEqual(closed, [true, true, true])
      }
      assert.deepEqual(left, [])
    })
  }
})

describe('with a /proc', options, () => {
  const code = 'ERR_OWNED_NO_PROC'
  const kinds = {
    'of another PID namespace': ['unshare', '--pid', '--fork', '--kill-child'],
    'that is not mounted': ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs tmpfs /proc; exec "$@"', 'sh'],
  }
  for (const [what, within] of Object.entries(kinds)) {
    test(`${what}, the bot starts, registers and reaps nothing`, {
      ...options,
      skip: withoutNamespace,
    }, async (t) => {
      const path = freshRegistry()
      const bot = await startBot(t, path, { within })
      for (const order of [['spawn', 'true', []], ['register', { pid: 1 }], ['reap']]) {
        await assert.rejects(bot.ask(...order), { code, message: /\/proc.*Nothing was started/s }, order[0])
      }
      assert.deepEqual(entriesOf(path), [])
    })
  }
})
