// Every way in which child_process starts a command without blocking, as a bot would write it. `cp`
// is Node's module, or ours.
import { promisify } from 'node:util'
import { script } from './fixtures.mjs'

const quoted = (words) => words.map((word) => `'${word}'`).join(' ')

/** The process of a promise that is not awaited. */
function childOf(promise) {
  promise.catch(() => {})
  return promise.child
}

/**
 * Each starts `file args…` and returns the process. The shell of `exec` becomes the command; the
 * forked script starts it.
 */
export const waysToStart = {
  spawn: (cp, file, args, options) => cp.spawn(file, args, options),
  exec: (cp, file, args, options) => cp.exec(`exec ${quoted([file, ...args])}`, options),
  execFile: (cp, file, args, options) => cp.execFile(file, args, options),
  'promisify(exec)': (cp, file, args, options) =>
    childOf(promisify(cp.exec)(`exec ${quoted([file, ...args])}`, options)),
  'promisify(execFile)': (cp, file, args, options) => childOf(promisify(cp.execFile)(file, args, options)),
  fork: (cp, file, args, options) => cp.fork(script('starts-a-command.mjs'), [file, ...args], options),
}
