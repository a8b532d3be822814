// Test files in processes of their own: several at once, each within a limit, and all of them gone when we are told to go.
import { spawn } from 'node:child_process'
import { root } from './tools.mjs'

const started = new Set()

/** Has `runFile` run each of them, so many at once; `each` hears of every result as it comes. */
export async function runFiles(files, atOnce, runFile, each) {
  const waiting = [...files]
  const worker = async () => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) each(await runFile(file))
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
}

/** Runs a command in the root, for so long at most: then it is killed, and `late`. */
export function execute(command, args, limitMs, options) {
  const child = spawn(command, args, { cwd: root, ...options })
  started.add(child)
  let late = false
  const timer = setTimeout(() => {
    late = true
    child.kill('SIGKILL')
  }, limitMs)
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code, signal) => {
      clearTimeout(timer)
      started.delete(child)
      resolve({ code, signal, late })
    })
  })
}

/**
 * What was started ends with us, and what that has started with it. To be called when the steps that wait for a command are over: a
 * handler would not be called until those have ended. Without one they just end.
 */
export function endOnSignals() {
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ])
    process.on(signal, () => {
      for (const child of started) child.kill('SIGKILL')
      process.exit(code)
    })
}
