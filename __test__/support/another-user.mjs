// Users that have nothing to do with the bot's. Only root can be several of them.
import { fork } from 'node:child_process'
import { script } from './fixtures.mjs'
import { isLinux, isNode, NO_PROC } from './system.mjs'

export const [NOBODY, SOMEBODY] = [65_534, 65_533]

/** Why a test with several users is left out, if it is. */
export const withoutUsers =
  (!isLinux && NO_PROC) ||
  (!isNode && 'only Node becomes another user') ||
  (process.getuid?.() !== 0 && 'only root can be several users')

/** One of them, in a process of its own: `await user.ask('kill', pid, 'SIGKILL')`, see fixtures/another-user.mjs. */
export async function startUser(t, uid = NOBODY) {
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
