// Runs test files in their own processes: several in parallel, each with a time limit. All end with
// this process.
import { spawn } from 'node:child_process'
import { root } from './tools.mjs'

const started = new Set()

/**
 * Calls `runFile` for each file, `atOnce` in parallel. `each` gets every result as soon as it
 * exists.
 */
export async function runFiles(files, atOnce, runFile, each) {
  const waiting = [...files]
  const worker = async () => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) each(await runFile(file))
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
}

/** Runs a command in the root folder. After `limitMs` it is killed, and `late` is true. */
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
 * Ends started commands, and what these started, when this process gets a signal. Call it after the
 * steps that wait synchronously for a command, because a handler runs only after such a wait.
 * Without a handler, a signal ends this process at once.
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
