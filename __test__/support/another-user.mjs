// Users that differ from the bot's user. Only root can start processes of several users.
import { fork } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { freshRegistry } from './bots.mjs'
import { script } from './fixtures.mjs'
import { isLinux, isNode, NO_PROC } from './system.mjs'

export const [USER_A, USER_B] = [65_534, 65_533]

/** Why a test with several users is left out, or false. */
export const withoutUsers =
  (!isLinux && NO_PROC) ||
  (!isNode && 'only Node can switch to another user') ||
  (process.getuid?.() !== 0 && 'only root can start processes of several users')

/** The path of a new registry in folders of this user. */
export function registryOf(uid) {
  const path = freshRegistry()
  for (const folder of [dirname(dirname(path)), dirname(path)]) {
    mkdirSync(folder, { recursive: true })
    chownSync(folder, uid, uid)
    chmodSync(folder, 0o755)
  }
  return path
}

/**
 * A process of another user: `await user.ask('kill', pid, 'SIGKILL')`, see
 * fixtures/another-user.mjs.
 */
export async function startUser(t, uid = USER_A) {
  const child = fork(script('another-user.mjs'), [String(uid)], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  t.after(() => child.kill('SIGKILL'))
  const waiting = new Map()
  const answer = (id) => new Promise((resolve, reject) => waiting.set(id, { resolve, reject }))
  child.on('message', ({ id, value, error }) => {
    const { resolve, reject } = waiting.get(id)
    if (error) reject(Object.assign(new Error(error.message), { code: error.code }))
    else resolve(value)
  })
  child.on('exit', () => {
    for (const { reject } of waiting.values()) reject(new Error('the other user is gone'))
  })
  await answer(0)
  let next = 1
  return {
    ask(order, ...args) {
      const id = next++
      child.send({ id, order, args }, () => {})
      return answer(id)
    },
  }
}
